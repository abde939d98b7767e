"""Diffusion models of diffusers as denoisers, with a small one that is trained here."""

import builtins
import json
import math

import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.errors import MissingExtra
from smoothcert.models.denoisers import load_denoiser
from smoothcert.models.denoisers.diffusion import DiffusionDenoiser
from smoothcert.tasks.audit import audit

diffusers = pytest.importorskip("diffusers")

SHAPE = (1, 8, 8)
LINEAR = diffusers.DDPMScheduler().alphas_cumprod


def images(count):
    """A bright square on a dark image, at a random place."""
    x = torch.zeros(count, *SHAPE)
    for image, (row, column) in zip(x, torch.randint(5, (count, 2)), strict=True):
        image[:, row : row + 4, column : column + 4] = 1
    return x


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A diffusion model after a few seconds of training, as `save_pretrained` writes it."""
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    scheduler = diffusers.DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        noise, steps = torch.randn(64, *SHAPE), torch.randint(50, 400, (64,))
        noisy = scheduler.add_noise(2 * images(64) - 1, noise, steps)
        loss = nn.functional.mse_loss(model(noisy, steps).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    place = tmp_path_factory.mktemp("diffusion")
    model.save_pretrained(place)
    scheduler.save_pretrained(place / "scheduler")
    return place


def error(estimate, clean):
    return float((estimate - clean).square().mean().sqrt())


@torch.no_grad()
def test_a_trained_model_removes_noise_at_its_sigma(folder):
    denoiser = load_denoiser(f"hf:{folder}")
    torch.manual_seed(1)
    clean = images(64)
    for sigma in (0.1, 0.25, 0.5):
        noisy = clean + sigma * torch.randn(clean.shape)
        fitting = error(denoiser.at(sigma)(noisy), clean)
        assert fitting < 0.6 * error(noisy.clamp(0, 1), clean)
        assert fitting < min(
            error(denoiser.at(wrong * sigma)(noisy), clean) for wrong in (1 / 3, 3)
        )


@torch.no_grad()
def test_one_sigma_for_each_row_gives_the_same_as_one_at_a_time(folder):
    denoiser, x = load_denoiser(f"hf:{folder}"), torch.rand(3, *SHAPE)
    together = denoiser(x, torch.tensor([0.1, 0.25, 0.5]))
    alone = [denoiser.at(sigma)(row[None]) for sigma, row in zip((0.1, 0.25, 0.5), x, strict=True)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_run_with_a_diffusion_model_is_recorded_and_audited(folder, tmp_path):
    torch.manual_seed(1)
    clean = images(4)
    data = (clean, [int(x[0, :, :4].sum() > x[0, :, 4:].sum()) for x in clean])

    def left(x):
        return (x[..., :4].sum((1, 2, 3)) > x[..., 4:].sum((1, 2, 3))).long()

    settings = {
        "noise": sc.Gaussian(0.25),
        "plan": sc.Fixed(100, pilot=20),
        "classes": 2,
        "batch": 64,
    }
    settings |= {"device": "cpu", "progress": sc.Progress()}
    run = sc.certify(left, data, out=tmp_path, denoiser=f"hf:{folder}", **settings)
    step = load_denoiser(f"hf:{folder}").timestep(0.25)
    assert f"timestep {step} of 1000" in run.manifest.denoiser["description"]
    assert not audit(tmp_path, model=left, data=data, redraw=2).findings


def test_a_module_behind_a_diffusion_model_runs_in_a_reduced_format(folder, tmp_path):
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).requires_grad_(False).eval()
    settings = {
        "noise": sc.Gaussian(0.25),
        "plan": sc.Fixed(100, pilot=20),
        "dtype": "bfloat16",
        "compile": "fast",
    }
    settings |= {"batch": 32, "device": "cpu", "progress": sc.Progress()}
    run = sc.certify(
        network, (images(2), [0, 1]), out=tmp_path, denoiser=f"hf:{folder}", **settings
    )
    assert run.complete
    assert run.manifest.dtype == "bfloat16"


class Oracle(nn.Module):
    """Knows the image, and answers as a perfect model with a given type of prediction would."""

    def __init__(self, clean, prediction):
        super().__init__()
        self.clean, self.prediction = 2 * clean - 1, prediction

    def forward(self, noisy, timestep):
        alpha = LINEAR.double()[timestep].view(-1, 1, 1, 1)
        signal, noise = alpha.sqrt(), (1 - alpha).sqrt()
        epsilon = (noisy - signal * self.clean) / noise
        answers = {
            "epsilon": epsilon,
            "v_prediction": signal * epsilon - noise * self.clean,
            "sample": self.clean,
        }
        return torch.cat(
            [answers[self.prediction], torch.full_like(noisy, torch.nan)], 1
        )  # and a variance


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_every_type_of_prediction_gives_the_image_back(prediction):
    clean = torch.rand(5, *SHAPE).double()
    denoiser = DiffusionDenoiser(Oracle(clean, prediction), LINEAR, prediction=prediction)
    noisy = clean + 0.25 * torch.randn(clean.shape).double()
    assert torch.allclose(denoiser.at(0.25)(noisy), clean, atol=1e-6)
    assert torch.allclose(denoiser(noisy, torch.full((5,), 0.25)), clean, atol=1e-6)


def test_the_timestep_has_the_noise_level_of_sigma_on_images_between_minus_one_and_one():
    denoiser = DiffusionDenoiser(nn.Identity(), LINEAR)
    for sigma in (0.12, 0.25, 0.5, 1.0):
        step = denoiser.timestep(sigma)
        betas = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
        alpha = float(torch.prod(1 - betas[: step + 1]))
        assert math.sqrt((1 - alpha) / alpha) == pytest.approx(2 * sigma, rel=0.01)
    low, high = denoiser.sigmas
    assert low == pytest.approx(0.005, rel=1e-2)
    assert high > 50


def test_estimates_stay_in_the_range_of_images():
    denoiser = DiffusionDenoiser(
        Oracle(torch.full((2, *SHAPE), 3.0).double(), "sample"), LINEAR, prediction="sample"
    )
    assert torch.equal(
        denoiser.at(0.5)(torch.rand(2, *SHAPE).double()), torch.ones(2, *SHAPE).double()
    )


def test_the_schedule_and_the_type_of_prediction_are_in_the_identity():
    models = [
        DiffusionDenoiser(nn.Identity(), LINEAR),
        DiffusionDenoiser(nn.Identity(), LINEAR, prediction="sample"),
        DiffusionDenoiser(
            nn.Identity(), diffusers.DDPMScheduler(beta_schedule="scaled_linear").alphas_cumprod
        ),
    ]
    assert len({repr(model) for model in models}) == 3


def copied(folder, place, *, config=None, scheduler=None):
    """The model with other settings, without its scheduler unless one is given."""
    place.mkdir()
    settings = json.loads((folder / "config.json").read_text()) | (config or {})
    (place / "config.json").write_text(json.dumps(settings))
    weights = "diffusion_pytorch_model.safetensors"
    (place / weights).symlink_to(folder / weights)
    if scheduler is not None:
        (place / "scheduler_config.json").write_text(json.dumps(scheduler))
    return place


def test_a_run_does_not_go_on_with_another_configuration(folder, tmp_path):
    """The weights are the same, and a function that returns labels hides small differences."""
    scheduler = json.loads((folder / "scheduler" / "scheduler_config.json").read_text())
    same = copied(folder, tmp_path / "same", scheduler=scheduler)
    other = copied(folder, tmp_path / "other", config={"freq_shift": 1}, scheduler=scheduler)
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(100, pilot=20), "classes": 2}
    settings |= {"device": "cpu", "batch": 64, "out": tmp_path / "run"}

    def bright(x):
        return (x.mean((1, 2, 3)) > 0.5).long()

    data = (images(4), [0] * 4)
    sc.certify(bright, data, denoiser=f"hf:{folder}", limit=1, **settings)
    sc.certify(bright, data, denoiser=f"hf:{same}", limit=2, **settings)
    with refused("other-configuration"):
        sc.certify(bright, data, denoiser=f"hf:{other}", limit=3, **settings)


@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2"])
def test_the_schedule_comes_from_the_file_of_the_scheduler(folder, tmp_path, schedule):
    settings = {
        "beta_schedule": schedule,
        "num_train_timesteps": 200,
        "prediction_type": "v_prediction",
    }
    denoiser = load_denoiser(f"hf:{copied(folder, tmp_path / 'model', scheduler=settings)}")
    expected = diffusers.DDPMScheduler(
        beta_schedule=schedule, num_train_timesteps=200
    ).alphas_cumprod
    assert torch.equal(denoiser.alphas, expected.double())
    assert denoiser.prediction == "v_prediction"


def test_without_a_scheduler_the_schedule_is_that_of_ddpm(folder, tmp_path):
    denoiser = load_denoiser(f"hf:{copied(folder, tmp_path / 'model')}")
    assert torch.equal(denoiser.alphas, LINEAR.double())
    assert denoiser.shape == SHAPE


def test_the_folder_of_a_pipeline_is_accepted(folder, tmp_path):
    copied(folder, tmp_path / "unet")
    (tmp_path / "scheduler").mkdir()
    settings = {"beta_schedule": "linear", "prediction_type": "sample"}
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(json.dumps(settings))
    for place in (tmp_path, tmp_path / "unet"):
        assert load_denoiser(f"hf:{place}").prediction == "sample"


@pytest.mark.parametrize("autoencoder", ["vae", "vqvae"])
def test_a_latent_diffusion_model_is_refused(folder, tmp_path, autoencoder):
    copied(folder, tmp_path / "unet")
    (tmp_path / autoencoder).mkdir()
    for place in (tmp_path, tmp_path / "unet"):
        with refused("unfit-diffusion-model"):
            load_denoiser(f"hf:{place}")


def test_an_unknown_type_of_prediction_is_refused():
    with refused("not-one-of", name="prediction", value="v"):
        DiffusionDenoiser(nn.Identity(), LINEAR, prediction="v")


@pytest.mark.parametrize(
    ("config", "scheduler", "code"),
    [
        ({"_class_name": "UNet2DConditionModel"}, None, "unfit-diffusion-model"),
        ({"num_class_embeds": 10}, None, "unfit-diffusion-model"),
        ({"time_embedding_type": "fourier"}, None, "unfit-diffusion-model"),
        ({}, {"_class_name": "EDMEulerScheduler"}, "no-beta-schedule"),
        ({}, {"beta_schedule": "unknown"}, "diffusion-model-not-loaded"),
        ({}, {"beta_schedule": "linear", "prediction_type": "flow"}, "not-one-of"),
        ({"block_out_channels": [16, 16]}, None, "diffusion-model-not-loaded"),
        ({"down_block_types": ["Unknown", "Unknown"]}, None, "diffusion-model-not-loaded"),
        ({"norm_num_groups": "four"}, None, "diffusion-model-not-loaded"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_sentence(folder, tmp_path, config, scheduler, code):
    place = copied(folder, tmp_path / "model", config=config, scheduler=scheduler)
    with refused(code):
        load_denoiser(f"hf:{place}")


def test_a_folder_without_a_model_is_one_sentence(folder, tmp_path):
    place = copied(folder, tmp_path / "model")
    (place / "diffusion_pytorch_model.safetensors").unlink()
    with refused("diffusion-model-not-loaded"):
        load_denoiser(f"hf:{place}")
    with refused("no-diffusers-model"):
        load_denoiser(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{")
    with refused("unreadable-file"):
        load_denoiser(f"hf:{tmp_path}")


def test_without_diffusers_the_error_says_what_to_install(folder, monkeypatch):
    original = builtins.__import__

    def refuse(name, *arguments):
        if name == "diffusers":
            raise ImportError(name)
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with refused("missing-extra", MissingExtra, extra="diffusers"):
        load_denoiser(f"hf:{folder}")
