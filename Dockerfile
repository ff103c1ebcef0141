# One replica of the shop. `docker compose up` runs three of them with everything they need.
FROM rust:1-bookworm AS build
WORKDIR /holdfast
COPY . .
RUN cargo build --release --locked

FROM debian:bookworm-slim
RUN useradd --system --no-create-home holdfast
COPY --from=build /holdfast/target/release/holdfast /usr/local/bin/holdfast
USER holdfast
ENV HOLDFAST_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["holdfast"]
CMD ["serve"]
