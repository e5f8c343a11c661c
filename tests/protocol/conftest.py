"""The fuzz tests of the rooms below play the scripts of `test_protocol_fuzz.py`: pytest puts the
folder of a `conftest.py` on the path of imports."""
