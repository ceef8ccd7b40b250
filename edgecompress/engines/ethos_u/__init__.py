"""Arm Ethos-U: .tflite files compiled by Vela, on LiteRT's reader."""
