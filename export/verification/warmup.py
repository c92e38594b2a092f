"""Warm-up requests: what a server asks a version before anybody else may.

TensorFlow Serving replays the records of `assets.extra/tf_serving_warmup_requests` when it loads a
version, so that the first user does not wait for what is allocated and optimised once. And a record
that fails makes the load fail: the server keeps the version that it has.
"""

from pathlib import Path

import tensorflow as tf

from export.capi.library import ServingError

WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000  # more are an error to the server


def write_warmup(directory, requests, functions):
    """Writes one record a request into a SavedModel that nobody serves yet.

    Args:
        directory: the SavedModel.
        requests: {signature: [{input: value}]}.
        functions: {signature: its `tf.function`}, for the types of the inputs.
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
    """The PredictRequests of a SavedModel, none if it has no such file.

    Raises:
        tf.errors.OpError, ValueError: the file is damaged, or has too many.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    path, requests = Path(directory, WARMUP_FILE), []
    if not path.is_file():
        return requests
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        requests.append(prediction_log_pb2.PredictionLog.FromString(record).predict_log.request)
    if len(requests) > MOST_RECORDS:
        raise ValueError(f"at most {MOST_RECORDS} records, got {len(requests)}")
    return requests


def of_warmup(number, error):
    """The ServingError, with the number of the warm-up request before its message."""
    return ServingError(error.code_name, f"warm-up request {number}: {error.message}")
