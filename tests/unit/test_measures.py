"""What `bench.measures` counts, on files that are made up."""

import ast

import pytest

from bench.measures import comments, length, native_measures, parameters, python_measures, python_of

TEXTS = {
    "radixkv/made_up.py": '''"""A module
of three lines of docstring
in all."""

# A comment of its own.
class Shown:
    """One line."""

    def shown(self, a, *rest, b=1):  # a comment at the end
        """Two
        lines."""
        assert a
        return b

    def _hidden(cls): ...


class _Hidden:
    def not_public(self): ...
''',
    "radixkv/v1/made_up_pb2.py": "generated = True\n",
    "tests/test_made_up.py": "def test_it(): ...\n",
    "kernels/tree/a.cpp": "int a;\n  assert(a);\nstatic_assert(true);\n",
    "kernels/fuzz/b.cpp": "int b;\nint c;\n",
    "radixkv/kernels/gpu/c.py": "compiled_by_triton = True\n",
    "radixkv/kernels/gpu/c.cu": "int c;\n",
}


@pytest.fixture
def found():
    return python_measures(python_of(TEXTS, "radixkv"))


def test_generated_files_and_those_of_other_folders_are_left_out(found):
    assert (found["files"], found["lines"]) == (1, 19)


def test_docstrings_and_comments_are_shares_of_the_lines(found):
    assert found["docstring lines, %"] == round(100 * 6 / 19, 1)
    assert found["comments, %"] == round(100 * 2 / 19, 1)
    assert comments('text = "# no comment"  # but this\n') == 1


def test_names_are_public_in_modules_and_in_public_classes(found):
    assert found["public names"] == found["public names with a docstring"] == 2


def test_a_function_is_as_long_as_its_lines_without_the_docstring(found):
    assert found["functions"] == 3
    assert found["function length"] == {"median": 1, "90 %": 3, "99 %": 3, "most": 3}
    (function,) = ast.parse("def f(\n    a,\n):\n    return a\n").body
    assert length(function) == 4


def test_self_and_cls_are_no_parameters_and_a_star_is_one(found):
    assert found["parameters"]["most"] == 3
    (function,) = ast.parse("def f(self, a, /, b, *, c, **d): ...").body
    assert parameters(function) == 4


def test_tests_and_asserts_are_counted(found):
    assert (found["asserts"], found["test functions"]) == (1, 0)
    assert python_measures(python_of(TEXTS, "tests"))["test functions"] == 1


def test_fuzzing_stands_apart_in_native_code():
    native = native_measures(TEXTS)
    assert (native["files"], native["lines"], native["fuzz lines"]) == (2, 4, 2)
    assert (native["asserts"], native["static_asserts"]) == (1, 1)
