"""A PredictionService for tests and for users without Docker. It is not TensorFlow Serving.

A SavedModel runs as in TensorFlow Serving: in TensorFlow's C++ session, in a process without Python
TensorFlow (`export.capi`). Requests use the real gRPC stubs and the same REST routes. The code
around the session follows the server's source (github.com/tensorflow/serving, 2.14 to 2.20); each
module names the files that it follows.

The service is not for production. It listens only on the loopback address, keeps three of the
server's metrics, and supports only `Predict` on SavedModels.

A request goes from `rpc` or `http` (with `connection` and `rest`) to `versions`, which finds its
`model`; `batching` may join it with others; the `worker` runs it.
"""
