# A voice behind the speech API: LiteRT speaks, there is no TensorFlow. The voice is mounted, exported with
# `myxtts export VOICE OUT --format litert`; added voices are kept in /data, the only place that is written.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY myxtts myxtts
RUN python -m venv /opt/myxtts \
    && /opt/myxtts/bin/pip install --no-cache-dir --constraint constraints.txt '.[speak,serve]'

FROM python:3.12-slim
COPY --from=build /opt/myxtts /opt/myxtts
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin myxtts && mkdir /data && chown myxtts /data
USER 10001
ENV PATH=/opt/myxtts/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
VOLUME /data
EXPOSE 8880
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8880/health', timeout=4)"]
ENTRYPOINT ["myxtts", "serve", "--voices-dir", "/data/voices"]
CMD ["--voice", "/voice"]
