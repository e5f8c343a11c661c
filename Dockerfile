# One peer with the page. Its key and its store are in /data; see docs/deployment.md.
FROM python:3.12-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY requirements/core.txt requirements/web.txt ./requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/core.txt -r requirements/web.txt \
 && pip install --no-cache-dir --no-deps . \
 && rm -rf /src \
 && useradd --create-home weft && install -d -o weft -g weft -m 700 /data /shared
WORKDIR /data
USER weft
ENV WEFT_HOME=/data
VOLUME /data
EXPOSE 4001 8700
ENTRYPOINT ["weft"]
CMD ["peer", "--listen", "0.0.0.0:4001", "--announce", "localhost", "--store"]
