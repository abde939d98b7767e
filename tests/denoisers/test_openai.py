"""Checkpoints of improved-diffusion and guided-diffusion, against outputs of the original programs."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tests.refusals import refused

from smoothcert.models.base import state_hash
from smoothcert.models.denoisers import load_denoiser

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference"
SETTINGS = {"improved": "", "guided": ",head_channels=16"}

needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference outputs")


def reference(family):
    """The weights, an input, its timesteps and the output of the original program."""
    with safe_open(REFERENCE / f"{family}-diffusion-small.safetensors", "pt") as file:
        content = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    inputs = [content.pop(name) for name in ("x", "timesteps", "output")]
    return {key.removeprefix("state."): value for key, value in content.items()}, *inputs


@pytest.fixture(params=SETTINGS)
def published(request, tmp_path):
    """A checkpoint as it is published, and what the original program answers."""
    state, x, timesteps, output = reference(request.param)
    torch.save(state, tmp_path / "model.pt")
    return f"openai:{tmp_path / 'model.pt'}{SETTINGS[request.param]}", x, timesteps, output


@needs_reference
def test_the_network_answers_as_the_original_program(published):
    spec, x, timesteps, output = published
    network = load_denoiser(spec).network
    network.scale = 1.0  # the original network gets timesteps that are rescaled already
    with torch.no_grad():
        difference = (network(x, timesteps) - output).abs().max()
    assert difference <= 1e-5 * output.abs().max()


@needs_reference
def test_each_family_has_its_schedule(tmp_path):
    steps = {}
    for family, settings in SETTINGS.items():
        torch.save(reference(family)[0], tmp_path / "model.pt")
        denoiser = load_denoiser(f"openai:{tmp_path / 'model.pt'}{settings}")
        # Noise of deviation 0.5 on [0, 1] is noise of deviation 1 on [-1, 1]: abar is a half.
        steps[family] = len(denoiser.alphas), float(denoiser.alphas[denoiser.timestep(0.5)])
    assert steps["improved"] == (4_000, pytest.approx(0.5, abs=1e-3))
    assert steps["guided"] == (1_000, pytest.approx(0.5, abs=1e-2))


@needs_reference
def test_improved_diffusion_knows_rescaled_timesteps(tmp_path):
    torch.save(reference("improved")[0], tmp_path / "model.pt")
    assert load_denoiser(f"openai:{tmp_path / 'model.pt'}").network.scale == 1_000 / 4_000


@needs_reference
def test_a_checkpoint_that_is_cut_off_is_refused(tmp_path):
    state, *_ = reference("guided")
    for missing in ("time_embed.0.weight", "output_blocks.3.1.qkv.weight", "out.2.weight"):
        rest = {key: value for key, value in state.items() if key != missing}
        torch.save(rest, tmp_path / "model.pt")
        with pytest.raises(ValueError, match=r"model\.pt"):
            load_denoiser(f"openai:{tmp_path / 'model.pt'},head_channels=16")


@needs_reference
def test_heads_that_do_not_fit_are_refused(tmp_path):
    torch.save(reference("guided")[0], tmp_path / "model.pt")
    with refused("wrong-heads", channels=64, heads=5):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},heads=5")
    with refused("wrong-heads", channels=64):  # one head of 48 channels would leave 16 alone
        load_denoiser(f"openai:{tmp_path / 'model.pt'},head_channels=48")


@needs_reference
def test_what_the_file_does_not_tell_is_a_part_of_the_hash(tmp_path):
    torch.save(reference("improved")[0], tmp_path / "model.pt")
    settings = ("", ",heads=2", ",heads=8", ",rescaled=0", ",schedule=linear")
    hashes = {state_hash(load_denoiser(f"openai:{tmp_path / 'model.pt'}{s}")) for s in settings}
    assert len(hashes) == len(settings)


@needs_reference
def test_shapes_that_make_no_network_are_refused(tmp_path):
    state, *_ = reference("improved")
    for name in ("time_embed.0.weight", "input_blocks.3.0.emb_layers.1.weight"):
        torch.save(state | {name: torch.zeros(())}, tmp_path / "model.pt")
        with refused("shapes-do-not-fit"):
            load_denoiser(f"openai:{tmp_path / 'model.pt'}")


@needs_reference
def test_settings_without_a_meaning_are_refused(tmp_path):
    torch.save(reference("improved")[0], tmp_path / "model.pt")
    with refused("not-one-of"):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},rescaled=false")
    with refused("no-heads"):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},heads=0")
    with refused("no-heads"):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},heads=4,head_channels=16")
    for settings in ("heads=4,heads=8", "preset=guided"):
        with refused("bad-denoiser-setting"):
            load_denoiser(f"openai:{tmp_path / 'model.pt'},{settings}")
    with refused("not-whole"):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},heads=\u0664")  # a digit of another script
    with refused("too-many-steps"):
        load_denoiser(f"openai:{tmp_path / 'model.pt'},steps=99999999999")


def test_other_files_and_settings_are_refused(tmp_path):
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with refused("not-openai-checkpoint"):
        load_denoiser(f"openai:{tmp_path / 'other.pt'}")
    with refused("bad-denoiser-setting", text="head=4"):
        load_denoiser(f"openai:{tmp_path / 'other.pt'},head=4")
