# harmonium in a container: the service alone, on all of the container's addresses, as a user without privileges.
# It needs keys (HARMONIUM_API_KEYS), and a Redis (HARMONIUM_REDIS_URL) or a volume at /data, where it has an embedded store
# else; compose.yaml brings keys and a Redis.
# --target sandbox is another image: `harmonium sandbox`, for code_interpreter, which needs neither (docs/tools.md).

FROM python:3.11.17-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/harmonium
COPY requirements/serve.txt requirements/
RUN /opt/harmonium/bin/pip install --require-hashes -r requirements/serve.txt
# .git where it is one, as a pattern need not match
COPY pyproject.toml setup.py README.md LICENSE .gi[t] ./
COPY docs docs
COPY store store
COPY service service
# what `harmonium --version` calls the build; empty is the commit that git's files name
ARG COMMIT=""
# what only installs is not taken along
RUN head=$(sed 's/^ref: //' HEAD); tip=$(cat "$head" || sed -n "s| $head\$||p" packed-refs); short=$(echo "${tip:-$head}" | cut -c -7); \
    COMMIT="${COMMIT:-$short}" /opt/harmonium/bin/pip install --no-deps --no-build-isolation . \
    && /opt/harmonium/bin/pip uninstall --yes setuptools pip

# the same with NumPy, pandas and Matplotlib, for sessions of Python
FROM python:3.11.17-slim-bookworm AS build-sandbox
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/sandbox.txt requirements/
RUN python -m venv /opt/harmonium \
    && /opt/harmonium/bin/pip install --require-hashes -r requirements/sandbox.txt \
    && /opt/harmonium/bin/pip uninstall --yes setuptools pip
COPY --from=build /opt/harmonium /opt/harmonium

FROM python:3.11.17-slim-bookworm AS sandbox
# a session finds its own folder behind the link
RUN useradd --create-home --uid 10001 harmonium && install -d -o harmonium -g harmonium /run/harmonium \
    && ln -s /proc/self/fd/100 /mnt/data
COPY --from=build-sandbox /opt/harmonium /opt/harmonium
ENV PATH=/opt/harmonium/bin:$PATH HARMONIUM_LOG_FORMAT=json
USER harmonium
WORKDIR /home/harmonium
VOLUME /run/harmonium
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
    CMD ["python", "-Sc", "import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect('/run/harmonium/sandbox.sock'); s.sendall(b'GET /health HTTP/1.0\\r\\n\\r\\n'); raise SystemExit(b' 200 ' not in s.recv(99))"]
ENTRYPOINT ["harmonium"]
CMD ["sandbox"]

FROM python:3.11.17-slim-bookworm
RUN useradd --create-home --uid 10001 harmonium && install -d -o harmonium -g harmonium -m 700 /data \
    && install -d -o harmonium -g harmonium /run/harmonium
COPY --from=build /opt/harmonium /opt/harmonium
ENV PATH=/opt/harmonium/bin:$PATH HARMONIUM_HOST=0.0.0.0 HARMONIUM_DATA_DIR=/data HARMONIUM_LOG_FORMAT=json
USER harmonium
WORKDIR /home/harmonium
EXPOSE 8000
VOLUME /data
STOPSIGNAL SIGTERM
# a socket, as urllib takes twice the time, and this runs for ever
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s \
    CMD ["python", "-Sc", "import os, socket; s = socket.create_connection(('127.0.0.1', os.environ.get('HARMONIUM_PORT', 8000)), 4); s.sendall(b'GET /health HTTP/1.0\\r\\nhost: localhost\\r\\n\\r\\n'); raise SystemExit(b' 200 ' not in s.recv(99))"]
ENTRYPOINT ["harmonium"]
CMD ["serve"]
