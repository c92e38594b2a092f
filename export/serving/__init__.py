"""A PredictionService for tests and for users without Docker. It is not TensorFlow Serving.

A SavedModel runs as in TensorFlow Serving: in TensorFlow's C++ session, in a process without Python
TensorFlow (`export.capi`). Requests use the real gRPC stubs and the same REST routes. The code
around the session follows the server's source (github.com/tensorflow/serving, 2.14 to 2.20); each
module names the files that it follows.

The service is not for production. It listens only on the loopback address, keeps three of the
server's metrics, and supports only `Predict` on SavedModels.

worker.py    the process of a loaded version
batching.py  joins requests of several clients into one run of the session
model.py     a loaded version, warmed up: from PredictRequest to PredictResponse
versions.py  which versions of which models are loaded: policies, labels, polling
rpc.py       the gRPC services
rest.py      converts between JSON and tensors; http.py: the REST routes
metrics.py   the counters for Prometheus
"""
