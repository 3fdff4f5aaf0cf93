# An example of an image with an agent's program inside, on top of runwarden's own. From the repository's root:
# docker build -f deploy/container/agent.Dockerfile -t runwarden-agent deploy/container
ARG BASE=runwarden
ARG NODE=docker.io/library/node:22-bookworm-slim

FROM ${NODE} AS program
RUN npm install --global --prefix /opt/agent @anthropic-ai/claude-code@2.1.330

FROM ${BASE}
COPY --from=program /opt/agent /opt/agent
# Claude Code brings its own runtime; a program written for Node needs this too:
# COPY --from=program /usr/local/bin/node /opt/agent/bin/node
ENV PATH=/opt/agent/bin:$PATH
