# docker build -t rnd . && docker run rnd                      the default job on a CPU
# docker build -t rnd --build-arg TORCH=cu128 . && docker run --gpus all rnd train montezuma
FROM python:3.12-slim
ARG TORCH=cpu
# The compiler builds the native core, and translates games at run time.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "torch>=2.11,<2.14" --index-url https://download.pytorch.org/whl/${TORCH}
COPY . /opt/rnd
RUN pip install --no-cache-dir /opt/rnd
RUN useradd --create-home rnd
USER rnd
WORKDIR /home/rnd
ENTRYPOINT ["rnd"]
CMD ["train"]
