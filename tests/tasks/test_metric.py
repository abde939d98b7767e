import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smoothcert as sc

RADII = (0, 0.25, 0.5)
pytestmark = pytest.mark.annexes


@pytest.fixture(scope="module")
def images():
    data = sc.load_dataset("fashion-mnist")
    x, y = zip(*(data[i] for i in range(60)), strict=True)
    return torch.stack([torch.as_tensor(np.asarray(one)) for one in x]), torch.tensor(y)


def test_the_estimate_is_near_what_certificates_prove_later(images):
    x, y = images
    model = sc.load_classifier("fashion-cnn").module
    metric = sc.CertifiedAccuracy(RADII, sc.Gaussian(0.25))
    for part in range(0, 60, 20):
        metric.update(model, x[part : part + 20], y[part : part + 20])
    proved = sc.Smoothed(model, noise=sc.Gaussian(0.25), device="cpu", dtype="float32").certify(
        x, y, plan=sc.AtRadii(RADII, 5_000, known_labels=True)
    )
    for radius, share in metric.compute().items():
        assert share == pytest.approx(proved.certified_accuracy([radius])[0], abs=0.04)


def test_large_radii_are_estimated_without_bias():
    radius = torch.linspace(-1, 4.2, 600)  # of a linear classifier, in standard deviations
    labels = torch.ones(600, dtype=torch.long)
    metric = sc.CertifiedAccuracy([0, 1, 2, 3], sc.Gaussian(1.0))
    metric.update(lambda x: torch.stack([-x[:, 0], x[:, 0]], 1), radius[:, None], labels)
    for r, share in metric.compute().items():
        assert share == pytest.approx(float((radius > r).float().mean()), abs=0.04)


def test_batches_do_not_matter_and_a_reset_draws_other_noise(images):
    x, y = images
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    shares = []
    for size in (60, 7):
        metric = sc.CertifiedAccuracy([0], sc.Gaussian(1.0), samples=20, batch=33)
        for part in range(0, 60, size):
            metric.update(model, x[part : part + size], y[part : part + size])
        shares.append(metric.compute())
    assert shares[0] == shares[1]
    metric.reset()
    with refused("no-votes"):
        metric.compute()
    metric.update(model, x, y)
    assert metric.compute() != shares[0]


def test_bytes_and_arrays_are_the_same_inputs_as_for_certify(images):
    x, y = images
    model, shares = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), []
    for given in (x, (255 * x).round().to(torch.uint8), x.numpy()):
        metric = sc.CertifiedAccuracy([0], sc.Gaussian(0.25), samples=20)
        metric.update(model, given, y)
        shares.append(metric.compute()[0])
    assert shares == pytest.approx(shares[:1] * 3, abs=1e-3)
    for label, code in ((-1, "too-small"), (1.5, "not-whole"), (10, "label-out-of-range")):
        with refused(code):
            metric.update(model, x[:1], [label])


def test_the_mode_and_the_gradients_of_the_model_stay(images):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10)).train()
    metric = sc.CertifiedAccuracy([0], sc.Gaussian(0.25), samples=10)
    metric.update(model, *images)
    assert all(module.training for module in model.modules())
    model(images[0]).sum().backward()
    assert model[2].weight.grad is not None


def test_what_is_no_batch_of_logits_is_one_sentence(images):
    metric = sc.CertifiedAccuracy([0], sc.Gaussian(0.25))
    with refused("not-one-label-each", inputs=60, labels=2):
        metric.update(nn.Flatten(), images[0], [1, 2])
    with refused("not-logits", shape=(1,)):
        metric.update(lambda x: x.flatten(1).sum(1), *images)


@pytest.mark.filterwarnings("ignore")
def test_it_works_in_lightning(images, tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
            self.certified = sc.CertifiedAccuracy(RADII, sc.Gaussian(0.25), samples=20)

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.cross_entropy(self.model(x + 0.25 * torch.randn_like(x)), y)

        def validation_step(self, batch, _):
            self.certified.update(self.model, *batch)

        def on_validation_epoch_end(self):
            self.log_dict(
                {
                    f"certified_{radius:g}": share
                    for radius, share in self.certified.compute().items()
                }
            )
            self.certified.reset()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-3)

    loader = DataLoader(TensorDataset(*images), batch_size=20)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Module(), loader, loader)
    shares = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert shares["certified_0"] > 0.3
    assert shares["certified_0"] >= shares["certified_0.25"] >= shares["certified_0.5"]
