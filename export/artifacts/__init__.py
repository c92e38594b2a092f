"""The files of an export: versions, forms of `serving_default`, deployment, CTranslate2 models."""
