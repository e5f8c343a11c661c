"""The kits of this folder serve all tests below it: pytest puts the folder of a `conftest.py` on
the path of imports."""
