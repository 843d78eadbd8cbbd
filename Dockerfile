# docs/hosting.md#in-containers says how to use it.
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# The sources come without their repository: docs/hosting.md#in-containers
ARG BELLBIRD_COMMIT=
RUN cargo build --release --locked --package bellbird && mkdir /data

FROM debian:bookworm-slim
# The roots that the certificates of providers and databases are verified against.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /source/target/release/bellbird /usr/bin/bellbird
# Not a name: Kubernetes can check that a number is not root.
COPY --from=build --chown=10001:10001 --chmod=0700 /data /var/lib/bellbird
USER 10001:10001
WORKDIR /var/lib/bellbird
VOLUME /var/lib/bellbird
# The ops listener stays on the container's loopback.
ENV BELLBIRD_API__LISTEN=0.0.0.0:8080 BELLBIRD_CONSOLE__LISTEN=0.0.0.0:8081
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["bellbird", "ready"]
ENTRYPOINT ["bellbird"]
CMD ["serve"]
