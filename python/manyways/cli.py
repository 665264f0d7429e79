"""The command line: `python -m manyways ask`, which `manyways flows ask` runs."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence

from manyways.flows import Flows, FlowsError, find
from manyways.questions import ALL


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0; 1 after a failure; 2 for invalid arguments."""
    args = _parser().parse_args(arguments)
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except FlowsError as error:
        print(f"manyways: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2 if error.is_usage else 1
    except BrokenPipeError:
        # Who read the answer has gone; Python would complain again when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m manyways", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    ask = commands.add_parser(
        "ask",
        help="ask a question of tables of flows",
        description="Asks a question of the tables that `manyways flows -o DIR` wrote.",
        epilog="Exit code: 0; 1 when it fails; 2 when the request makes no sense.",
    )
    ask.add_argument("folder", nargs="?", metavar="DIR", help="the folder with the tables")
    ask.add_argument("question", nargs="?", metavar="QUESTION", help="its name; --list names all")
    ask.add_argument("--list", action="store_true", help="list the questions")
    ask.add_argument("--where", metavar="SQL", help="only rows that fit: \"system = 'Android'\"")
    ask.add_argument("--plot", metavar="FILE", help="draw it as well: .png, .svg or .pdf")
    form = ask.add_mutually_exclusive_group()
    form.add_argument("--sql", action="store_true", help="print the query instead of the answer")
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--csv", action="store_true", help="print the rows as CSV")
    ask.set_defaults(run=_ask)
    return parser


def _list(args: argparse.Namespace) -> None:
    listed = [{"name": one.name, "title": one.title} for one in ALL.values()]
    if args.json:
        print(json.dumps({"schema": "manyways-flows-questions/1", "questions": listed}))
    elif args.csv:
        rows = csv.DictWriter(sys.stdout, ["name", "title"], lineterminator="\n")
        rows.writeheader()
        rows.writerows(listed)
    else:
        width = max(map(len, ALL))
        for one in listed:
            print(f"{one['name']:<{width}}  {one['title']}")


def _ask(args: argparse.Namespace) -> int:
    if args.list:
        _list(args)
        return 0
    # A word alone is a question to those who want only its SQL, and a folder to all others.
    if args.sql and args.folder in ALL and args.question is None:
        args.folder, args.question = None, args.folder
    if args.question is None or args.folder is None and not args.sql:
        missing = "a question" if args.folder else "a folder and a question"
        raise FlowsError(f"{missing} is missing", "name one of --list", is_usage=True)
    question = find(args.question)
    if args.sql:
        print(question.sql(args.where))
        return 0
    flows = Flows(args.folder)
    answer = flows.ask(question.name, args.where)
    drawn = flows.plot(question.name, args.plot, args.where) if args.plot else True
    sys.stdout.write(answer.json() if args.json else answer.csv() if args.csv else answer.text())
    if not drawn:
        print("manyways: there is nothing to draw, and no figure was written", file=sys.stderr)
    return 0
