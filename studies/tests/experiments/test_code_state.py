"""What counts as a change of the code that computed a result, and what a page says of it."""

from bayesify_studies.experiments.framework.code_state import PACKAGE, changed, digest

MODULES = {
    f"{PACKAGE}.first": '"""What it is."""\nfrom bayesify_studies.experiments.study_z import networks, page\n\n'
    'RATE = 0.1\n\n\ndef run():\n    """Train."""\n    return networks.train(RATE, "scale-mixture:0.5"), "a sentence"\n',
    f"{PACKAGE}.study_z": '"""A study."""\n',
    f"{PACKAGE}.study_z.networks": "def train(rate, prior):\n    # Why.\n    return rate, prior\n",
    f"{PACKAGE}.study_z.page": "TITLE = 'one'\n",
}
NAME = f"{PACKAGE}.first"


def _after(module: str, old: str, new: str) -> str | None:
    edited = {**MODULES, f"{PACKAGE}.{module}": MODULES[f"{PACKAGE}.{module}"].replace(old, new)}
    assert edited != MODULES
    return digest(NAME, edited.get)


def test_prose_and_pages_do_not_change_the_state_of_the_code():
    before = digest(NAME, MODULES.get)
    assert before == _after("first", "What it is", "Something else")
    assert before == _after("first", "a sentence", "other words")
    assert before == _after("first", "\n\n\ndef", "\n\n\n\ndef")
    assert before == _after("study_z.networks", "# Why.", "# Because.")
    assert before == _after("study_z.page", "one", "two")


def test_numbers_settings_and_imported_code_change_it():
    before = digest(NAME, MODULES.get)
    assert before != _after("first", "0.1", "0.2")
    assert before != _after("first", "mixture:0.5", "mixture:0.25")
    assert before != _after("study_z.networks", "rate, prior\n", "prior, rate\n")


def test_a_result_names_the_modules_that_changed_since():
    code = {NAME: digest(NAME, MODULES.get)}
    assert changed(code, MODULES.get) == []
    edited = {**MODULES, NAME: MODULES[NAME].replace("0.1", "0.2")}
    assert changed(code, edited.get) == ["first"]
    assert changed({f"{PACKAGE}.gone": "123"}, MODULES.get) == ["gone"]


def test_the_installed_code_has_a_state():
    assert digest("bayesify_studies.experiments.priors") not in (None, digest("bayesify_studies.experiments.coin"))
    assert digest("bayesify_studies.experiments.no_such_module") is None
