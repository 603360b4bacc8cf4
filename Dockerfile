# The images of docker-compose.yml and deploy/kubernetes: `exchange` is llmx alone, `serve` has nats-server beside it, `proxy`
# HAProxy in front of gateways, `soak` the laboratory.
# Builder and base are of one Debian release, because llmx links its C library. To pin them for a release, add the digests
# of the day: docker buildx imagetools inspect rust:1.95-slim-bookworm

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The commit this is, for the metric exchange_build_info.
ARG LLMX_GIT_SHA=
# The caches keep crates and their builds between images; what is to stay has to leave them in the same step.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --profile dist --locked --package llmx \
    && install -D target/dist/llmx /out/llmx

FROM debian:bookworm-slim AS exchange
# Certificates of public authorities, for key sets that are fetched over https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/llmx /usr/local/bin/llmx
# A new volume takes over the owner of the folder it is mounted on, so each place that is written to exists here.
RUN install -d -o 10001 -g 10001 -m 0750 /keys/private /keys/public /volumes/nats /volumes/nats-2 /volumes/nats-3 /archive
USER 10001:10001
WORKDIR /archive
ENTRYPOINT ["llmx"]
CMD ["--help"]

FROM exchange AS serve
# It needs no library of the image that it comes from; the next step ends the build if that changes.
COPY --from=nats:2.15.1-alpine /usr/local/bin/nats-server /usr/local/bin/nats-server
RUN ["nats-server", "--version"]
USER 0
RUN install -d -o 10001 -g 10001 -m 0750 /data
USER 10001:10001
ENV LLMX_DATA=/data LLMX_SIGNING_KEY=/data/signing-key.pem LLMX_LISTEN=0.0.0.0:8080
WORKDIR /data
CMD ["serve"]

FROM exchange AS proxy
USER 0
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends haproxy \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/haproxy.cfg /etc/haproxy/haproxy.cfg
USER 10001:10001
ENTRYPOINT ["haproxy"]
CMD ["-f", "/etc/haproxy/haproxy.cfg"]

FROM build AS build-soak
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --profile dist --locked --package llmx_lab \
    && install -D target/dist/llmx-lab /out/llmx-lab

FROM exchange AS soak
COPY --from=build-soak /out/llmx-lab /usr/local/bin/llmx-lab
USER 0
RUN install -d -o 10001 -g 10001 -m 0750 /soak
USER 10001:10001
WORKDIR /soak
ENTRYPOINT ["llmx-lab"]

# What is built when no target is named.
FROM exchange
