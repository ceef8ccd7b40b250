"""LiteRT (TensorFlow Lite): .tflite files, for this runtime and for the one of old devices."""
