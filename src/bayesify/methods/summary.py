"""The summary of a method: its tensors, facts about it, and notes on everything that is approximate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.methods.variational.estimators import stochastic_layers, why_not
from bayesify.training.kl import KL
from bayesify.training.loop import Plan

if TYPE_CHECKING:
    from bayesify.methods.after_fit import Checked
    from bayesify.methods.method import Method

# Estimators that apply to every layer of a network.
WHOLE = ("weight", "moments")


@dataclass(frozen=True)
class Row:
    """One trained tensor."""

    name: str
    shape: tuple[int, ...]
    random: bool
    prior: str
    estimator: str


@dataclass(frozen=True)
class Summary:
    """Rows for the tensors, facts about the whole, and notes on what is not exact."""

    method: str
    rows: list[Row]
    facts: dict[str, str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {
            "method": self.method,
            "parameters": [row.__dict__ | {"shape": list(row.shape)} for row in self.rows],
            "facts": self.facts,
            "notes": self.notes,
        }

    def __str__(self) -> str:
        heads = ("tensor", "shape", "random", "prior", "estimator")
        table = [
            (row.name, "x".join(map(str, row.shape)) or "1", "yes" if row.random else "no", row.prior, row.estimator)
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in (heads, *table)) for i in range(len(heads))]
        lines = [self.method]
        for line in (heads, *table):
            lines.append("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        lines += [f"{name}: {value}" for name, value in self.facts.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def summarise(method: Method, x: Any = None) -> Summary:
    """Describe a method; with a batch x the traced facts (estimators by layer, tier, dropout) are filled in."""
    network = method.network
    notes: list[str] = []
    trace = network.trace if x is None else network.traced(x)
    estimator = getattr(method, "estimator", None)
    served, reasons = _served(method, estimator, trace)
    rows = []
    for place in network.places:
        owner = place.name.rpartition(".")[0]
        how = ""
        if place.random and estimator is not None:
            how = estimator if estimator in WHOLE or owner in served else "weight"
            if estimator not in WHOLE and trace is None:
                how = f"{estimator} where it applies"
            elif owner in reasons:
                how = f"weight ({reasons[owner]})"
            elif estimator == "local" and not served.get(owner, True):
                how = "local (approximate: positions independent)"
        prior = method.prior.describe(place.name) if method.prior is not None and place.random else ""
        rows.append(Row(place.name, tuple(place.shape), place.random and estimator is not None, prior, how))
    rows += [Row(name, tuple(t.shape), False, "", "frozen") for name, t in network.frozen().items()]
    facts = {
        "likelihood": repr(method.likelihood),
        "trained weights": f"{network.size:,} ({network.random_size:,} random)"
        if estimator is not None
        else f"{network.size:,}",
    }
    kept = getattr(method, "kept_weights", None)
    if kept is not None and kept.numel():
        pruned = int((~kept).sum())
        facts["pruned"] = f"{pruned:,} weights are zero, {network.size - pruned:,} are left"
    own_facts = getattr(method, "facts", None)
    if own_facts is not None:
        facts |= own_facts()
    if trace is not None and trace.dropout_sites:
        facts["dropout"] = ", ".join(f"{site.rate:g}" for site in trace.dropout_sites)
    if x is not None:
        draws = 2 if method.held is None else method.held
        own = method.draw_buffers(range(draws)) is not None
        rows_of = pytree.tree_map_only(Tensor, lambda t: t.expand(draws, *t.shape), x) if own else x
        stochastic = method.dropout_keys(range(draws), 0) is not None
        tier, why = network.tier(draws, rows_of, train=False, each=own, stochastic=stochastic)
        facts["tier for draws"] = f"{tier} ({why})"
    if method.final_elbo is not None:
        facts["ELBO"] = str(method.final_elbo)
    if method.checked is not None:
        facts |= _checked(method.checked)
        notes += method.checked.notes.values()
    if isinstance(method.plan, Plan):
        kl = KL.parse(method.plan.kl)
        facts["KL weighting"] = str(kl)
        facts["training path"] = "compiled" if method.plan.compiled else "plain"
        if kl.temperature != 1:
            notes.append(f"the KL is multiplied by a temperature of {kl.temperature:g}: the objective is not the ELBO")
        if kl.warm_up:
            notes.append(f"the KL is warmed up over {kl.warm_up:g} epochs: until then the objective is not the ELBO")
    if estimator == "moments":
        notes.append("moments take the units of a layer for independent Gaussians: the ELBO is approximate")
    notes += _prior_notes(method)
    if getattr(method.likelihood, "objective", None) == "expected":
        notes.append("the expected log-likelihood over logit draws is a lower bound of the likelihood's logarithm")
    if method.likelihood.remark is not None:
        notes.append(method.likelihood.remark)
    notes += [f"before you trust it: {sentence}" for sentence in method.warnings.values()]
    return Summary(type(method).__name__, rows, facts, notes)


def _checked(checked: Checked) -> dict[str, str]:
    facts = {"NLL after the fit": str(checked)} if checked.nll is not None else {}
    units = [f"{count} of {total} in {layer!r}" for layer, (count, total) in checked.units_at_the_prior.items()]
    return facts | ({"units at the prior": ", ".join(units)} if units else {})


def _served(method: Method, estimator: str | None, trace: Any) -> tuple[dict[str, bool], dict[str, str]]:
    if estimator in {None, *WHOLE} or trace is None:
        return {}, {}
    served = {layer.name: layer.exact_local for layer in stochastic_layers(method.network, trace)}
    owners = {place.name.rpartition(".")[0] for place in method.network.places if place.random}
    reasons = {owner: why_not(method.network, owner, trace) for owner in owners - set(served)}
    return served, {owner: reason for owner, reason in reasons.items() if reason}


def _prior_notes(method: Method) -> list[str]:
    if method.prior is None:
        return []
    notes = []
    if not method.prior.proper:
        notes.append("the prior is improper: the ELBO is known up to a constant, and widths are bounded")
    kinds = {type(p): p for p in method.prior.assignments.values()}.values()
    notes += [str(p.approximate) for p in kinds if p.approximate]
    return notes
