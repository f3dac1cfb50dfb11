"""``python -m torch_tpu``: tools. None of them loads a plugin into this process."""

import argparse
import os
import sys

from torch_tpu import _cache_cli
from torch_tpu.aot import _cli as _aot_cli


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_tpu", description=__doc__.partition(":")[2].strip())
    tools = parser.add_subparsers(metavar="TOOL", required=True)
    _cache_cli.add_parser(tools)
    _aot_cli.add_parser(tools)
    options = parser.parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # "| head" has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
