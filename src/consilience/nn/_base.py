"""What all losses on rows have in common: a temperature, and how the losses of rows become one number."""

from __future__ import annotations

from torch import Tensor, nn

from consilience._validation import check_choice, check_temperature

REDUCTIONS = ("mean", "sum", "none")


class RowLoss(nn.Module):
    """Base of losses that have a value per row.

    Parameters
    ----------
    temperature : float
        Divides logits; from 1e-6 to 1e6.
    reduction : {"mean", "sum", "none"}
    """

    def __init__(self, temperature: float, reduction: str) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        return f"temperature={self.temperature:g}, reduction={self.reduction!r}"


def reduce_rows(rows: Tensor, reduction: str) -> Tensor:
    """Return the losses of rows (n,) as they are, or their sum or mean; the mean of no rows is 0."""
    if reduction == "none":
        return rows
    return rows.sum() if reduction == "sum" else rows.sum() / max(len(rows), 1)
