"""The personal algorithms as the paper has them: no guard, nothing pooled, step sizes given."""

from functools import partial

import sartor

AS_IT_IS = {"guard": False, "shrink": False}

Finetune = partial(sartor.Finetune, learning_rate=0.01, **AS_IT_IS)
Local = partial(sartor.Local, learning_rate=0.05, **AS_IT_IS)
Dapper = partial(sartor.Dapper, learning_rate=0.04, **AS_IT_IS)
Mapper = partial(sartor.Mapper, learning_rate=0.03, central_learning_rate=0.05, **AS_IT_IS)
