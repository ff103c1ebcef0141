# One replica of the shop. `docker compose up` runs three of them with everything they need.
# Without cache mounts, which the builder of Compose 1.29 does not have.
FROM debian:bookworm-slim AS runtime
# A number, so that an orchestrator can verify that it is not root.
USER 10001:10001
ENV HOLDFAST_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["holdfast"]
CMD ["serve"]

FROM rust:1.95-bookworm AS build
WORKDIR /holdfast
COPY . .
RUN cargo build --release --locked

FROM runtime
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /holdfast/target/release/holdfast /usr/local/bin/
