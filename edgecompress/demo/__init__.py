"""The embedded demo: a small convolutional net on handwritten digits."""
