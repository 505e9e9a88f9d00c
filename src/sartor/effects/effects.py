"""What a hierarchical fit returns: effects of everybody and of clients, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sartor.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Effects:
    """A fitted hierarchical model.

    Attributes:
        fixed: [fixed] β, the effects that are the same for everybody.
        clients: [clients, varying] b_k, the posterior means of the clients' own effects.
        covariance: [varying, varying] of the distribution that the b_k are drawn from.
        noise: the variance of a row around its expectation; 1 for logistic models.
        spread: [clients, varying, varying] the covariance of each b_k given β.
        follows: [clients, varying, fixed] how far b_k moves back if β moves by one.
        uncertainty: [fixed, fixed] the covariance of β.
    """

    fixed: Floats
    clients: Floats
    covariance: Floats
    noise: float
    spread: Floats
    follows: Floats
    uncertainty: Floats

    def score(
        self, fixed: Floats, varying: Floats, owner: Ints, offset: Floats | None = None
    ) -> Floats:
        """The scores of rows. An owner of −1 is a client that the fit has not seen: its b is 0."""
        own = np.where(owner[:, None] >= 0, self.clients[owner], 0.0)
        score = fixed @ self.fixed + np.einsum("rv,rv->r", varying, own)
        return score if offset is None else score + offset

    def variance(self, fixed: Floats, varying: Floats, owner: Ints) -> Floats:
        """The variance of the scores of rows, of all that is unknown but the covariance itself.

        The variance of a new row's label is this and ``noise``.
        """
        known = owner >= 0
        spread = np.where(known[:, None, None], self.spread[owner], self.covariance)
        follows = np.where(known[:, None, None], self.follows[owner], 0.0)
        apart = fixed - np.einsum("rv,rvf->rf", varying, follows)
        own = np.einsum("rv,rvw,rw->r", varying, spread, varying)
        return own + np.einsum("rf,fg,rg->r", apart, self.uncertainty, apart)
