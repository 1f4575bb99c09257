"""No test compiles a game unless it says so: `$CXX` names no compiler."""

import os

os.environ["CXX"] = "no-compiler-in-tests"
