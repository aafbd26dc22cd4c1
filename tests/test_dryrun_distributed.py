"""One rank of several: what it holds against what the whole model holds, and against torch's and Accelerate's own count."""

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from planner.errors import InvalidJob, PlannerError
from planner.families import architecture_from_config
from planner.job import Job
from planner.sharding import Sharding

torch = pytest.importorskip("torch")
for package in ("transformers", "peft", "bitsandbytes"):
    pytest.importorskip(package)

from planner.dryrun import DryRun, dry_run  # noqa: E402
from planner.dryrun.cuda import BEHAVIOURS, Behaviours  # noqa: E402
from planner.dryrun.distributed import fake_mesh, fully_sharded, with_buckets  # noqa: E402
from planner.dryrun.log import Allocation, EventLog  # noqa: E402

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip
MIB = 2**20


def small_job(layers: int = 2, method: str = "full", vocab_size: int = 1024, **fields: Any) -> Job:
    config = CONFIG | {"num_hidden_layers": layers, "vocab_size": vocab_size, "tie_word_embeddings": False}
    return Job(architecture=architecture_from_config(config, name="small"), **{"method": method, "sequence_length": 64, **fields})


@cache
def run(sharding: Sharding | None, layers: int = 2, *, full: bool = False, **fields: Any) -> DryRun:
    return dry_run(small_job(layers, **fields), sharding=sharding, full=full, without=BEHAVIOURS)


def parameter_bytes(result: DryRun, dtype: str = "float32") -> int:
    """Matrices and norms of the base, without its small buffers."""
    found = [a for a in result.log.allocations if a.phase == "load" and a.category == "weights" and a.dtype == dtype]
    return sum(a.bytes for a in found if "inv_freq" not in a.module)


def state_bytes(result: DryRun) -> int:
    return sum(a.bytes for a in result.log.allocations if a.category == "optimizer_states")


def alive(result: DryRun, instant: str, operator: str) -> list[Allocation]:
    found = [result.log.allocations[number] for number in result.log.alive_after(result.fullest[instant])]
    return [a for a in found if a.operator == operator]


# ---- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (("zero4", 8), "kind is 'zero4'; it must be ddp, zero1, zero2, zero3, fsdp, hybrid, tensor"),
        (("tensor", 16), "16 GPUs are more than the 8 of one"),
        (("zero2", 8, 8, "parameters"), "offload is 'parameters'; it must be none, optimizer"),
        (("fsdp", 1), "num_gpus is 1; it must be at least 2"),
        (("hybrid", 12, 8), "12 GPUs are not that with 8 a node"),
        (("hybrid", 8, 8), "hybrid sharding needs two or more whole nodes"),
        (("hybrid", 8, 1), "of two or more GPUs"),
    ],
)
def test_what_cannot_be_shared_is_one_sentence(values: Any, sentence: str) -> None:
    with pytest.raises(InvalidJob, match=sentence):
        Sharding(*values)


@pytest.mark.parametrize("sharding", [Sharding("zero3", 8), Sharding("fsdp", 8, offload="parameters")])
def test_what_cannot_run_on_fake_tensors_is_refused(sharding: Sharding) -> None:
    with pytest.raises(InvalidJob, match="use the closed form"):
        dry_run(small_job(), sharding=sharding)


# ---- DDP ---------------------------------------------------------------------------------------------------------------


def test_ddp_holds_all_and_its_buckets() -> None:
    alone, ddp = run(None), run(Sharding("ddp", 8))
    buckets = [a for a in ddp.log.allocations if a.operator == "DDP bucket"]
    assert parameter_bytes(ddp) == parameter_bytes(alone) == 4 * alone.job.architecture.num_params
    assert sum(a.bytes for a in buckets) == 4 * alone.job.trained_params
    for instant in ("forward", "backward_end", "optimizer"):
        assert ddp.tensor_bytes_at(instant) == alone.tensor_bytes_at(instant) + sum(a.rounded_bytes for a in buckets)


def test_ddp_does_not_depend_on_the_number_of_gpus() -> None:
    assert run(Sharding("ddp", 2)).peak == run(Sharding("ddp", 64)).peak


def test_buckets_are_those_of_the_reducer() -> None:
    sizes = [300_000, 90_000, 900_000, 6_000_000, 10, 2_000_000, 7_000_000, 40_000, 5]
    log = EventLog([Allocation(4, "weights", "load", "", "parameter")], [0], [None])
    log.marks = [(0, "load"), (1, "step 1 forward"), (1, "step 1 backward")]
    for size in sizes:
        log.events.append(len(log.allocations))
        log.at.append(None)
        log.allocations.append(Allocation(4 * size, "gradients", "backward", "", "mm", dtype="float32"))
    found = [a.bytes for a in with_buckets(log).allocations if a.operator == "DDP bucket"]
    import torch.distributed as dist

    tensors = [torch.empty(size, device="meta") for size in sizes]
    indices, _ = dist._compute_bucket_assignment_by_size(tensors, [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * MIB])
    assert sorted(found) == sorted(sum(4 * sizes[i] for i in bucket) for bucket in indices)
    assert log.marks == [(0, "load"), (1 + len(found), "step 1 forward"), (1 + len(found), "step 1 backward")]


# ---- FSDP2 -------------------------------------------------------------------------------------------------------------


def test_fsdp_divides_weights_and_states() -> None:
    whole, part = run(None), run(Sharding("fsdp", 8))
    assert 8 * parameter_bytes(part) == parameter_bytes(whole)
    assert 8 * state_bytes(part) == state_bytes(whole) == 8 * whole.job.trained_params


@pytest.mark.slow
def test_hybrid_divides_by_the_gpus_of_a_node() -> None:
    hybrid = run(Sharding("hybrid", 16, 4))
    assert 4 * parameter_bytes(hybrid) == parameter_bytes(run(None))
    assert 4 * state_bytes(hybrid) == 8 * hybrid.job.trained_params


@pytest.mark.slow
def test_rows_that_do_not_divide_are_padded() -> None:
    part = run(Sharding("fsdp", 8), vocab_size=1001)
    matrices = [
        a for a in part.log.allocations if a.phase == "load" and a.module.endswith(("embed_tokens.weight", "lm_head.weight"))
    ]
    assert [a.bytes for a in matrices] == 2 * [-(-1001 // 8) * 256 * 4]


def test_a_block_is_gathered_while_its_neighbour_is_prefetched() -> None:
    part = run(Sharding("fsdp", 8), layers=3)
    block = 2 * part.job.architecture.block_params // 3  # in bf16
    start, end = part.windows["backward_end"]
    now, most = {"FSDP gathered parameter": 0, "FSDP all-gather output": 0, "FSDP reduce-scatter input": 0}, 0
    alive_now = {a: part.log.allocations[a] for a in part.log.alive_after(start)}
    for event in part.log.events[start + 1 : end]:
        if event >= 0:
            alive_now[event] = part.log.allocations[event]
        else:
            del alive_now[~event]
        of_blocks = [a for a in alive_now.values() if a.operator in now and a.block is not None]
        if sum(a.bytes for a in of_blocks) > most:
            most = sum(a.bytes for a in of_blocks)
            now = {name: sum(a.bytes for a in of_blocks if a.operator == name) for name in now}
    assert now["FSDP gathered parameter"] == now["FSDP all-gather output"] == now["FSDP reduce-scatter input"] == block


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp", "hybrid"])
def test_the_process_group_is_gone_afterwards(kind: Any) -> None:
    run(Sharding(kind, 16))
    assert not torch.distributed.is_initialized()


def test_the_process_group_is_gone_after_an_error() -> None:
    with pytest.raises(InvalidJob, match="adamw-8bit cannot work on the parts of tensors that fsdp gives it; use one of adamw, "):
        run(Sharding("fsdp", 8), optimizer="adamw-8bit")
    with pytest.raises(InvalidJob, match="int8 layers lose their row scales"):
        run(Sharding("fsdp", 8), method="lora", quantization="int8")
    assert not torch.distributed.is_initialized()


def test_a_process_group_of_the_caller_is_left_alone() -> None:
    with fake_mesh(Sharding("fsdp", 2)) as mesh:
        with pytest.raises(PlannerError, match="start the dry run of several GPUs in another process"):
            run(Sharding("fsdp", 4))
        assert torch.distributed.get_world_size() == mesh.size() == 2


@pytest.mark.slow
def test_more_gpus_hold_less_each() -> None:
    peaks = [run(Sharding("fsdp", count)).peak.allocated for count in (2, 8, 64)]
    assert peaks == sorted(peaks, reverse=True) and len(set(peaks)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kbit_preparation", [True, False])
def test_a_4_bit_base_is_not_divided(kbit_preparation: bool) -> None:
    fields = {"method": "qlora", "kbit_preparation": kbit_preparation}
    whole, part = run(None, **fields), run(Sharding("fsdp", 8), **fields)
    assert parameter_bytes(part, "uint8") == parameter_bytes(whole, "uint8") > 0
    rest = "float32" if kbit_preparation else "bfloat16"
    assert 8 * parameter_bytes(part, rest) == parameter_bytes(whole, rest) > 0
    assert 8 * state_bytes(part) == state_bytes(whole) > 0


@pytest.mark.slow
def test_checkpointing_works_on_sharded_blocks() -> None:
    on, off = (run(Sharding("fsdp", 8), layers=3, gradient_checkpointing=value) for value in ("on", "off"))
    assert {a.block for a in on.log.allocations if a.phase == "recompute"} == {0, 1, 2}
    assert not any(a.phase == "recompute" for a in off.log.allocations)
    assert on.components_at("forward")["activations"] < off.components_at("forward")["activations"] / 4


@pytest.mark.slow
def test_accumulated_gradients_stay_whole() -> None:
    """Accelerate's no_sync reduces only the last micro-batch's, and each rank keeps all in the compute dtype until then."""
    part = run(Sharding("fsdp", 8), gradient_accumulation_steps=4)
    kept = alive(part, "forward", "FSDP gradient, not reduced")
    assert sum(a.bytes for a in kept) == 2 * part.job.trained_params


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharding", "fields"),
    [
        (Sharding("fsdp", 8), {}),
        (Sharding("fsdp", 8), {"gradient_checkpointing": "off", "gradient_accumulation_steps": 2}),
        (Sharding("hybrid", 16), {"method": "lora"}),
        (Sharding("fsdp", 8), {"method": "qlora"}),
        (Sharding("ddp", 8), {}),
    ],
    ids=str,
)
def test_five_blocks_from_three_are_five_blocks(sharding: Sharding, fields: dict[str, Any]) -> None:
    few, all_of_them = run(sharding, layers=5, **fields), run(sharding, layers=5, full=True, **fields)
    assert (len(few.traced_blocks), len(all_of_them.traced_blocks)) == (3, 5)
    assert few.allocated_at == all_of_them.allocated_at
    assert few.peak.reserved == pytest.approx(all_of_them.peak.reserved, rel=0.05)


# ---- second routes -----------------------------------------------------------------------------------------------------


def sharded_model(job: Job, mesh: Any, sharding: Sharding) -> Any:
    from planner.dryrun.model import build_model, transformers_config

    model = build_model(job, transformers_config(job.architecture), [True] * job.architecture.num_hidden_layers)
    fully_sharded(model, job, job.architecture.num_hidden_layers, sharding, mesh)
    return model


@pytest.mark.slow
def test_torchs_own_memory_tracker_counts_the_same() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    from planner.dryrun.libraries import libraries_unaware
    from planner.dryrun.trace import make_optimizer

    sharding, job = Sharding("fsdp", 8), small_job(sequence_length=256)
    # First, since it fills DTensor's cache of sharding rules: the tracker counts the global shapes that these are tried on.
    ours = max(run(sharding, sequence_length=256, full=True).log.curve())
    with warnings.catch_warnings(), fake_mesh(sharding) as mesh, libraries_unaware(job):
        warnings.simplefilter("ignore")
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = sharded_model(job, mesh, sharding)
            trained = list(model.parameters())
            optimizer = make_optimizer(job, trained)
            batch = {name: torch.empty((1, 256), dtype=torch.int64) for name in ("input_ids", "labels")}
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs(tuple(batch.values()))
            with tracker:
                for _ in range(2):
                    loss = model(**batch).loss
                    loss.backward()
                    del loss
                    torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert ours == pytest.approx(peak, rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "tied"), [("full", False), ("full", True), ("lora", False)])
def test_units_are_those_of_accelerate(method: str, tied: bool) -> None:
    pytest.importorskip("accelerate", minversion="1.15")
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model
    from torch._subclasses import FakeTensorMode
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    from planner.dryrun.model import build_model, transformers_config
    from planner.dryrun.placement import place

    def units(model: Any) -> list[Any]:
        states = dict.fromkeys(module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule))
        return [
            (group._reshard_after_forward, group.mp_policy, sorted(str(p.sharded_param.shape) for p in group.fsdp_params))
            for state in states
            for group in state._fsdp_param_groups
        ]

    config = CONFIG | {"num_hidden_layers": 2, "tie_word_embeddings": tied}
    job = Job(architecture=architecture_from_config(config, name="small"), method=method, sequence_length=64)
    sharding = Sharding("fsdp", 8)
    with warnings.catch_warnings(), fake_mesh(sharding) as mesh, FakeTensorMode(allow_non_fake_inputs=True):
        warnings.simplefilter("ignore")
        ours = sharded_model(job, mesh, sharding)
        theirs = build_model(job, transformers_config(job.architecture), [True, True])
        list(place(theirs, job))
        plugin = SimpleNamespace(
            set_auto_wrap_policy=lambda model: None, reshard_after_forward=True, cpu_offload=OffloadPolicy(),
            ignored_modules=None, mixed_precision_policy=MixedPrecisionPolicy(*[torch.bfloat16] * 3),
            auto_wrap_policy=transformer_auto_wrap_policy,
            transformer_cls_names_to_wrap=["LlamaDecoderLayer"], cpu_ram_efficient_loading=False,
        )  # fmt: skip
        accelerator = SimpleNamespace(
            state=SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh={("all",): mesh}, is_main_process=False,
            parallelism_config=SimpleNamespace(fsdp_dim_names=("all",)), device=torch.device("cpu"), mixed_precision="bf16",
        )  # fmt: skip
        fsdp2_prepare_model(accelerator, theirs)
    assert units(ours) == units(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"method": "lora", "precision": "bf16"}, {"gradient_accumulation_steps": 2}], ids=str)
def test_what_is_booked_is_what_is_alive(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's garbage collector knows every fake tensor; their storages are those of the log."""
    import gc

    from torch._guards import detect_fake_mode
    from torch._subclasses import FakeTensor

    from planner.dryrun.ledger import Ledger
    from planner.dryrun.trace import trace_steps

    plain, calls, compared = Ledger.__torch_dispatch__, 0, []

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        nonlocal calls
        result = plain(self, func, types, args, kwargs)
        calls += self.phase != "load"
        if calls % 151 == 1 and result is not NotImplemented:
            mode = detect_fake_mode()
            tensors = [found for found in gc.get_objects() if type(found) is FakeTensor and found.fake_mode is mode]
            there = sum({found.untyped_storage()._cdata: found.untyped_storage().nbytes() for found in tensors}.values())
            compared.append((there, sum(self.log.allocations[index].bytes for index, _ in self._live.values())))
        return result

    monkeypatch.setattr(Ledger, "__torch_dispatch__", dispatch)
    trace_steps(
        small_job(**fields), [0, 1], Behaviours(without=frozenset(BEHAVIOURS)), both_steps=True, sharding=Sharding("fsdp", 8)
    )
    assert len(compared) > 20
    assert all(0 <= there - known <= 512 for there, known in compared)  # step counts, which are in host memory
