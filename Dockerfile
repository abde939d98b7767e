# smoothcert with torch for CUDA, which also runs on a CPU:
#
#     docker build -t smoothcert .
#     docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" smoothcert \
#         certify --model fashion-cnn --data fashion-mnist --sigma 0.25 --out runs/a
#
# For an image without CUDA, about 5 GB smaller: --build-arg INDEX=https://download.pytorch.org/whl/cpu
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG EXTRAS=vision,hf,onnx,ray,pandas
ARG INDEX=https://pypi.org/simple
# torch.compile builds a small C extension for every kernel, at run time.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
# An index of torch builds has only some packages; the others come from PyPI.
RUN if [ "$INDEX" != https://pypi.org/simple ]; then \
        pip install --no-cache-dir --index-url "$INDEX" torch torchvision; \
    fi \
    && pip install --no-cache-dir "$(ls /wheels/smoothcert-*.whl)[$EXTRAS]" \
    && rm -rf /wheels
# Caches must be writable for every --user.
ENV HOME=/tmp TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor MPLCONFIGDIR=/tmp/matplotlib
RUN useradd smoothcert
USER smoothcert
WORKDIR /work
ENTRYPOINT ["smoothcert"]
CMD ["--help"]
