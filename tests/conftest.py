"""`--runslow` adds the statistical tests."""

import pytest

# failed assertions of what tests share show their values too
pytest.register_assert_rewrite("tests.models", "tests.tools")


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run the statistical tests too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--runslow"):
        return
    left_out = pytest.mark.skip(reason="statistical; needs --runslow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(left_out)
