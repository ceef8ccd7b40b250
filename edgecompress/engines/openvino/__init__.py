"""OpenVINO: its IR, and int8 by NNCF."""
