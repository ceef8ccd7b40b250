"""TensorFlow as a source: SavedModels and Keras files."""
