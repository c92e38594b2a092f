"""Warm-up requests: the server runs them before a version answers clients.

TensorFlow Serving replays the records of `assets.extra/tf_serving_warmup_requests` when it loads a
version. So the first client does not wait for one-time allocation and optimisation. If a record
fails, loading fails, and the server keeps its current version.
"""

from pathlib import Path

import tensorflow as tf

from ..capi.library import ServingError

WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000  # the server's limit: more records are an error


def write_warmup(directory, requests, functions):
    """Writes one record per request into a SavedModel that is not served yet.

    The `functions`, {signature: its `tf.function`}, give the types of the inputs.
    """
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    path = Path(directory, WARMUP_FILE)
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, asked in requests.items():
            dtypes = {spec.name: spec.dtype for spec in functions[name].input_signature}
            for request in asked:
                predict = predict_pb2.PredictRequest()
                predict.model_spec.signature_name = name
                for key, value in request.items():
                    predict.inputs[key].CopyFrom(tf.make_tensor_proto(value, dtypes[key]))
                log = prediction_log_pb2.PredictionLog()
                log.predict_log.request.CopyFrom(predict)
                writer.write(log.SerializeToString())


def read_warmup(directory):
    """The warm-up PredictRequests of a SavedModel; [] if it has none. Raises if one is damaged."""
    from tensorflow_serving.apis import prediction_log_pb2

    path, requests = Path(directory, WARMUP_FILE), []
    if not path.is_file():
        return requests
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        requests.append(prediction_log_pb2.PredictionLog.FromString(record).predict_log.request)
    if len(requests) > MAX_RECORDS:
        raise ValueError(f"at most {MAX_RECORDS} records, got {len(requests)}")
    return requests


def of_warmup(number, error):
    """The ServingError with the number of the warm-up request in front of its message."""
    return ServingError(error.code_name, f"warm-up request {number}: {error.message}")
