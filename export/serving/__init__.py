"""A PredictionService for tests and for people without Docker: it is not TensorFlow Serving.

A SavedModel runs here as it does there, by TensorFlow's C++ session in a process without Python
TensorFlow (`export.capi`); requests come through the real gRPC stubs and the same REST routes;
and what surrounds the session is written after the server's source, whose files each module names
(github.com/tensorflow/serving, 2.14 to 2.20). It listens on the loopback address alone, keeps
three of the server's metrics, knows no other platform than a SavedModel's `Predict`, and is not for
production.

worker.py    the process of a loaded version
batching.py  requests of several clients in one run of the session
model.py     a loaded version, warmed up: from PredictRequest to PredictResponse
versions.py  which versions of which models are loaded: policies, labels, polling
rpc.py       the gRPC services
rest.py      JSON and tensors; http.py: the REST routes
metrics.py   what is counted, for Prometheus
"""
