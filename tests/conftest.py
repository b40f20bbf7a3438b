"""One thread for each test process, little work for its garbage collector, and one process for each file."""

import gc
import importlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis  # noqa: F401  (before `gc.freeze`, which hides the generators that it looks for)
import pytest
from tests.sites import sites, unified  # noqa: F401  (fixtures that several rooms share)

LONG = {"science", "nn", "scoring", "meta", "examples", "oracles"}  # folders
RAY = re.compile(r"(?<![a-z])ray(?![a-z])")  # in the names of tests that need a cluster

# two processes with two threads each would wait for one another
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Do not search the millions of objects that modules and tests are made of: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first, so that no process ends with it alone; leave out what runs at night."""
    for item in items:
        assert "ray_cluster" not in getattr(item, "fixturenames", ()) or RAY.search(item.nodeid), item
        if item.get_closest_marker("nightly") and os.environ.get("CONSILIENCE_NIGHTLY") != "1":
            item.add_marker(pytest.mark.skip(reason="runs at night: set CONSILIENCE_NIGHTLY=1"))
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts) and not RAY.search(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one process, which makes their fixtures once, and those of Ray in one, too.

    Two Ray clusters on two processors starve each other: workers miss the deadlines of tests of faults.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "ray" if RAY.search(nodeid) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A Ray cluster of two machines with two processors each, all of them this one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'consilience[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    memory = {"object_store_memory": 80 * 2**20, "num_cpus": 2}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**memory, "include_dashboard": False}
    )
    cluster.add_node(**memory)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray makes its settings with all it deprecates
        importlib.import_module("ray.data").DataContext.get_current()
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser without a window."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    service = shutil.which("chromedriver")
    if not (program and service):
        pytest.skip("no browser: install chromium and chromium-driver to test pages in one")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
        "--disable-sync --disable-dev-shm-usage --no-first-run"
    )
    for flag in [*flags.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield driver
    driver.quit()
