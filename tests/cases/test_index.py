"""README.md here lists the numbered tests and what users met: each case, and where it is tested."""

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
INDEX = (TESTS / "cases" / "README.md").read_text("utf-8")


def cases_tested():
    """The files that hold tests of each case; a test may name several cases."""
    found = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = re.match(r"test((?:_B\d+)+)_", node.name, re.IGNORECASE)
                for case in named[1].strip("_").split("_") if named else ():
                    found[case].add(str(path.relative_to(TESTS)))
    return found


def cases_listed():
    """The files that the index names for each case."""
    rows = re.findall(r"^\| (B\d+) \|.*\|(.*)\|$", INDEX, re.M)
    assert len(rows) == len({case for case, _ in rows}), "a case has two rows"
    return {case: set(re.findall(r"`(.+?)`", files)) for case, files in rows}


def test_the_index_and_the_numbered_tests_name_the_same_cases_and_files():
    assert cases_listed() == cases_tested()


def test_the_index_is_in_order():
    cases = [*cases_listed()]
    assert cases == sorted(cases)
    assert len(cases) > 25


def test_the_commands_that_the_index_names_are_there():
    named = re.findall(r"`python -m (bench\.\w+)`", INDEX)
    assert "bench.model_types" in named
    for module in named:
        assert (TESTS.parent / f"{module.replace('.', '/')}.py").is_file()


def test_what_users_met_is_tested_where_the_index_says():
    rows = re.findall(r"^\| ([TF]\d+) \|.*\|(.*)\|$", INDEX, re.M)
    assert len(rows) == len(dict(rows)), "a row is there once"
    # But for those of latent attention's sizes, of converted models and of prose on planning, which
    # their own tests name.
    assert dict(rows).keys() == {
        *(f"T{row}" for row in (9, 10, 12, 14, 30)),
        *(f"F{row}" for row in range(1, 22) if row not in (3, 4, 20)),
    }
    for row, named in rows:
        places = re.findall(r"`(.+?)`", named)
        assert places, row
        for place in places:
            path, _, test = place.partition("::")
            source = (TESTS / path).read_text("utf-8")
            assert not test or re.search(rf"def {test}\(", source), f"{row}: {place} is not there"
