# harmonium in a container: the service alone, on all of the container's addresses, as a user without privileges.
# It needs a Redis (HARMONIUM_REDIS_URL) and keys (HARMONIUM_API_KEYS); compose.yaml brings both together.

FROM python:3.11.14-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/harmonium
COPY requirements/serve.txt requirements/
RUN /opt/harmonium/bin/pip install --require-hashes -r requirements/serve.txt
COPY pyproject.toml setup.py README.md ./
COPY store store
COPY service service
# what `harmonium --version` calls the build: docker build --build-arg COMMIT=$(git rev-parse --short HEAD) .
ARG COMMIT=""
# what only installs is not taken along
RUN COMMIT="$COMMIT" /opt/harmonium/bin/pip install --no-deps --no-build-isolation . \
    && /opt/harmonium/bin/pip uninstall --yes setuptools pip

FROM python:3.11.14-slim-bookworm
RUN useradd --create-home --uid 10001 harmonium && install -d -o harmonium -g harmonium -m 700 /data
COPY --from=build /opt/harmonium /opt/harmonium
ENV PATH=/opt/harmonium/bin:$PATH HARMONIUM_HOST=0.0.0.0 HARMONIUM_DATA_DIR=/data HARMONIUM_LOG_FORMAT=json
USER harmonium
WORKDIR /home/harmonium
EXPOSE 8000
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:%s/health' % os.environ.get('HARMONIUM_PORT', 8000), timeout=2)"]
ENTRYPOINT ["harmonium"]
CMD ["serve"]
