"""The engine of the tests: nets in JSON that compute almost nothing."""
