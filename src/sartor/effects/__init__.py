"""Hierarchical models: linear models of everybody's rows, and what each client adds to them.

Client k scores a row x by (offset + x·β + z·b_k), where z are the columns whose effects vary and
b_k is drawn from a normal distribution around 0. Its covariance says how much clients differ, and
is estimated from all of them: clients with few rows stay with the crowd, and those with many rows
go their own way. All fits are exact, by all clients' normal equations at once. Linear models may
have a second grouping of the rows, such as the regions of shops or the items of users.
"""

from sartor.effects.crossed import CrossedEffects as CrossedEffects
from sartor.effects.crossed import fit_crossed as fit_crossed
from sartor.effects.crossing import Grouping as Grouping
from sartor.effects.effects import Effects as Effects
from sartor.effects.linear import fit_linear as fit_linear
from sartor.effects.logistic import fit_logistic as fit_logistic
from sartor.effects.updating import update_linear as update_linear
from sartor.effects.updating import update_logistic as update_logistic
from sartor.effects.updating import with_clients as with_clients
from sartor.effects.updating import without_client as without_client
from sartor.effects.updating import without_fixed as without_fixed
