"""`smoothcert train`: train a base classifier on noisy inputs, or a denoiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import Progress

import smoothcert as sc
from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    Folder,
    NoiseOptions,
    Transform,
)
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.models import Classifier
    from smoothcert.training import Epoch, Recipe, Trained


def train(
    *,
    data: str,
    noise: NoiseOptions,
    epochs: int,
    out: Folder,
    method: str = "gaussian",
    arch: str | None = None,
    model: str | None = None,
    weights: str | None = None,
    denoiser: str | None = None,
    sigmas: Sequence[float] | None = None,
    stability: bool = False,
    transform: Transform = None,
    copies: int | None = None,
    weight: float | None = None,
    epsilon: float | None = None,
    steps: int | None = None,
    batch: int = 256,
    lr: float | None = None,
    schedule: Literal["cosine", "step", "onecycle"] | None = None,
    weight_decay: float = 1e-4,
    seed: int = 0,
    device: str = "auto",
    dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    compile: Literal["auto", "none", "default"] = "auto",
) -> Output:
    """Train a base classifier for smoothing, or a denoiser. Run it again to resume.

    --sigma 0 trains without noise.

    Args:
        data: What to train on, such as fashion-mnist:DIR or cifar10:DIR.
        epochs: The number of passes over the data.
        out: The folder for checkpoints and weights. The same command resumes the training.
        method: gaussian, consistency, macer, smoothadv, smoothmix, catrs, or a method of --import.
            finetune: continue with a classifier behind a denoiser. denoiser: train a denoiser
            instead of a classifier.
        arch: fashion-cnn, cifar-resnet18, cifar-resnet20 or cifar-resnet110. denoiser: unet-small,
            unet, unet-large or unet-imagenet. Not needed with --model or --weights.
        model: The classifier to start from, as in certify. denoiser: the classifier of --stability.
        weights: The weights of this classifier.
        denoiser: A denoiser in front of the classifier, which stays fixed. denoiser: the one to
            start from.
        sigmas: denoiser: the smallest and the largest sigma, as in 0.1,1.0. Default: just --sigma.
        stability: denoiser: also keep the answers of a classifier (--model, --weights), with the
            weight --weight.
        transform: Also turn or zoom each picture at random, up to so many degrees or percent, as
            `certify --transform` does: rotation:30, zoom:20.
        copies: Noisy copies of each input. Default: as in the paper.
        weight: The weight of the regularisation (lambda). Default: as in the paper for this sigma;
            1 with --stability.
        epsilon: smoothadv, smoothmix, catrs: size of the attack. Default: as in the paper.
        steps: smoothadv, smoothmix, catrs: steps of the attack. Default: as in the paper.
        batch: Inputs per step.
        lr: The highest learning rate. Default: 0.01 with macer and finetune, 0.002 with denoiser,
            else 0.1.
        schedule: How the learning rate changes. Default: onecycle with denoiser, else cosine.
        weight_decay: L2 penalty.
        seed: The seed of initial weights, order, augmentation and noise.
        device: cpu, cuda, cuda:N or mps. Default: the fastest one.
        dtype: auto: bfloat16 on CUDA.
        compile: auto: default on CUDA.
    """
    from smoothcert.noises import transformed
    from smoothcert.training import Recipe, method_named

    constants: dict[str, Any] = {"copies": copies, "epsilon": epsilon, "steps": steps}
    if stability:
        constants["stability"] = 1.0 if weight is None else weight
    else:
        constants["weight"] = weight
    chosen = method_named(method, **_noise(noise, sigmas, method), **constants)
    # Behind a denoiser, the bundled weights with the least noise in training fit best.
    sigma = None if denoiser or stability else chosen.sigma
    classifier = _classifier(method, arch, model, weights, sigma)
    recipe = Recipe(
        _architecture(method, arch, classifier),
        chosen,
        epochs=epochs,
        batch=batch,
        learning_rate=lr,
        schedule=schedule,
        weight_decay=weight_decay,
        seed=seed,
        transformation=None if transform is None else transformed(noise.build(), transform),
    )
    training = sc.load_dataset(data, train=True)
    validation = sc.load_dataset(data)
    held_out = validation.fingerprint != training.fingerprint
    per_epoch = len(training) // batch * batch
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("training", total=epochs * per_epoch)

        def on_epoch(epoch: Epoch) -> None:
            bar.update(task, completed=epoch.number * per_epoch)
            left = (epochs - epoch.number) * len(training) / epoch.images_per_second
            speed = f"{epoch.images_per_second:,.0f} images/s  {left:,.0f} s left"
            scores = _scores(recipe, epoch, held_out)
            console.print(
                f"epoch {epoch.number}/{epochs}  loss {epoch.loss:.4f}  {scores}  {speed}",
                soft_wrap=True,
            )

        trained = sc.train(
            recipe,
            training,
            validation,
            out=out,
            classifier=classifier,
            denoiser=None if denoiser is None else sc.load_denoiser(denoiser),
            device=device,
            dtype=dtype,
            compile=compile,
            on_step=lambda images: bar.advance(task, images),
            on_epoch=on_epoch,
        )
    measure: str = recipe.method.measure
    plain = {
        "weights": str(trained.weights),
        measure: getattr(trained, measure),
        "epochs": epochs,
        "epochs_now": trained.epochs_now,
    }
    state = f"trained {trained.epochs_now} of {epochs} epochs now"
    if not trained.epochs_now:
        state = "complete already"
    achieved = f"{_result(recipe, trained, held_out)}, weights in {trained.weights}"
    return Output(plain, [f"{state}: {achieved}"])


def _scores(recipe: Recipe, epoch: Epoch, held_out: bool) -> str:
    """How good the model is after an epoch, in words."""
    judged = "validation" if held_out else "afterwards"
    if recipe.method.measure == "psnr":
        return f"PSNR: training {epoch.train_psnr:.2f} dB, {judged} {epoch.psnr:.2f} dB"
    noisy = "noisy " if recipe.method.sigma else ""
    return f"{noisy}accuracy: training {epoch.train_accuracy:.1%}, {judged} {epoch.accuracy:.1%}"


def _result(recipe: Recipe, trained: Trained, held_out: bool) -> str:
    """What the training achieved, in words."""
    from smoothcert.training import Denoising

    judged = "validation" if held_out else "training"
    if isinstance(recipe.method, Denoising):
        noisy_psnr = f"{recipe.method.noisy_psnr:.2f} dB noisy"
        return f"PSNR of {judged} inputs {noisy_psnr}, {trained.psnr:.2f} dB denoised"
    noisy = "noisy " if recipe.method.sigma else ""
    return f"{trained.accuracy:.1%} of {noisy}{judged} inputs right"


def _noise(options: NoiseOptions, sigmas: Sequence[float] | None, method: str) -> dict[str, Any]:
    """The noise as `method_named` takes it.

    There is no smoothing noise of sigma 0, but training without noise.
    """
    if sigmas is None:
        if options.sigma == 0 and options.noise is None:
            return {"sigma": 0.0}
        return {"noise": options.build()}
    if method != "denoiser" or len(sigmas) != 2 or options.described() is not None:
        raise InvalidInput(
            "not-a-range",
            "--sigmas {value}: give the smallest and the largest sigma, as in 0.1,1.0, with "
            "--method denoiser and without --sigma and --noise",
            value=",".join(map("{:g}".format, sigmas)),
        )
    return {"sigma_low": sigmas[0], "sigma": sigmas[1]}


def _classifier(
    method: str, arch: str | None, model: str | None, weights: str | None, sigma: float | None
) -> Classifier | None:
    """The classifier to start from, or the one of the stability loss."""
    if method != "denoiser":
        if model and arch:
            raise InvalidInput(
                "arch-and-model",
                "--arch {arch} and --model {model} exclude one another: give one of them",
                arch=arch,
                model=model,
            )
        if weights or method == "finetune":
            model = model or arch
    if model or weights:
        return sc.load_classifier(model, weights=weights, sigma=sigma)
    return None


def _architecture(method: str, arch: str | None, classifier: Classifier | None) -> str:
    """The name of what is trained."""
    from smoothcert.models.architectures import NAMED_WEIGHTS

    if arch is not None:
        return arch
    if classifier is None or method == "denoiser":
        raise InvalidInput(
            "no-arch",
            "--arch is missing: name the architecture to train, as in --arch {example}",
            example="unet-small" if method == "denoiser" else "fashion-cnn",
        )
    return NAMED_WEIGHTS.get(classifier.name, classifier.name)
