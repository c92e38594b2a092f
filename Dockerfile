# Trains, evaluates and exports with the tested versions:
#   docker build -t tfformer .
#   docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/work" tfformer train --source a.en --target a.de --run runs/a
FROM python:3.12-slim
COPY requirements.lock pyproject.toml README.md LICENSE /source/
COPY tfformer /source/tfformer
COPY training /source/training
COPY export /source/export
RUN pip install --no-cache-dir -c /source/requirements.lock '/source[all]' && rm -r /source
WORKDIR /work
ENTRYPOINT ["tfformer"]
CMD ["--help"]
