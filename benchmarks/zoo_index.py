"""The index of the zoo that comes with the package, from the agents in results/.

    python benchmarks/zoo_index.py [--results results]

Run it after an agent was added, replaced or removed; tests/checkpoint/test_zoo.py compares the two.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rnd.checkpoint.zoo import INDEX, index_of
from rnd.foundation.files import write_json


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    entries = index_of(parser.parse_args().results)
    write_json(INDEX, entries)
    print(f"{len(entries)} agents in {INDEX}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
