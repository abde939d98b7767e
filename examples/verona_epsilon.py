"""Randomized smoothing as an epsilon estimator of VERONA (ADA-research), next to its verifiers.

    experiment_repository and the rest as in VERONA's own scripts, with this estimator:
    SmoothingEstimator(epsilon_value_list=[0, 0.25, 0.5], sigma=0.25)

Epsilon is an l2 radius of the smoothed classifier, and it is proved. Nothing is refuted, so no smallest counterexample
is known. Inputs have values in [0, 1], so normalisation belongs inside of the network.
"""

import time

from ada_verona.database.epsilon_value_result import EpsilonValueResult
from ada_verona.epsilon_value_estimator.epsilon_value_estimator import EpsilonValueEstimator

import smoothcert as sc


class SmoothingEstimator(EpsilonValueEstimator):
    def __init__(self, epsilon_value_list, *, sigma, **settings):
        super().__init__(epsilon_value_list, verifier=None)
        self.sigma = sigma
        self.settings = settings

    def compute_epsilon_value(self, verification_context):
        start = time.time()
        point = verification_context.data_point
        network = verification_context.network.load_pytorch_model().eval()
        inputs = point.data.reshape(1, *point.data.shape[-3:])
        [certificate] = sc.certify(
            network,
            inputs,
            [point.label],
            radii=self.epsilon_value_list,
            sigma=self.sigma,
            **self.settings,
        )
        epsilon = certificate.radius if certificate.correct else 0
        seconds = time.time() - start
        return EpsilonValueResult(verification_context, epsilon, "undefined", seconds, "smoothcert")
