"""Several GPUs, time, storage, offers and money."""

__all__ = ["RUNS"]

_SEVERAL_GPUS = {
    "Cards": "Kart sayısı",
    "DDP": "DDP",
    "FSDP": "FSDP",
    "FSDP, hybrid shard": "FSDP, hibrit parçalama",
    "ZeRO-1": "ZeRO-1",
    "ZeRO-2": "ZeRO-2",
    "ZeRO-3": "ZeRO-3",
    "tensor parallel": "tensör paralel",
    "Number of GPUs": "GPU sayısı",
    "GPUs per node": "Düğüm başına GPU",
    "Shared by": "Paylaşım",
    "In host memory": "Ana bellekte",
    "nothing": "hiçbiri",
    "optimizer states in host memory": "optimizer durumları ana bellekte",
    "parameters and states in host memory": "parametreler ve durumlar ana bellekte",
    "parameters and optimizer states": "parametreler ve optimizer durumları",
    "Link": "Bağlantı",
    "Why": "Neden",
    "How many cards of each kind it takes, and why": "Her karttan kaç tane gerektiği ve nedeni",
    "How many {gpu} it takes: {count} ({why})": "Gereken {gpu} sayısı: {count} ({why})",
    "No single card in the catalogue holds this job.": "Katalogdaki hiçbir tek kart bu işe yetmiyor.",
    "each of {count} {gpu} ({way})": "{count} adet {gpu}, her biri ({way})",
    "one card holds it": "tek kart yetiyor",
    "one card lacks {missing}; {way} leaves {device} on each": "tek kartta {missing} eksik; {way} ile her birine {device} düşüyor",
    "{count} cards still lack {missing} each": "{count} kartta bile kart başına {missing} eksik",
    "block inputs and their gradients, kept by hooks": "hook'ların tuttuğu blok girdileri ve gradyanları",
    "bucket of gradients": "gradyan kovası",
    "gradient buckets": "gradyan kovaları",
    "gradients being reduced": "toplanmakta olan gradyanlar",
    "gradients, not reduced": "henüz toplanmamış gradyanlar",
    "fp32 copy of this rank's gradients": "bu rank'ın gradyanlarının fp32 kopyası",
    "fp32 master weights": "fp32 ana ağırlıklar",
    "gathered parameters": "bir araya getirilmiş parametreler",
    "units gathered ahead": "önden getirilen birimler",
    "a dry run knows ddp, and fsdp and hybrid of version 2 with an integer base and no offload; use the closed form": (
        "kuru çalıştırma ddp'yi, bir de tamsayı temel modelli ve ana belleğe taşımasız fsdp ile hybrid'in 2. sürümünü bilir; kapalı formülü kullanın"
    ),
    "bitsandbytes' int8 layers lose their row scales where parameters are divided; use a 4-bit base, or ddp": (
        "parametreler bölündüğünde bitsandbytes'ın int8 katmanları satır ölçeklerini yitirir; 4-bit temel model ya da ddp kullanın"
    ),
    "optimizer {optimizer} cannot work on the parts of tensors that {kind} gives it; use one of {known}, or ddp": (
        "{optimizer} optimizer'ı {kind} ile aldığı tensör parçalarıyla çalışamaz; şunlardan birini ya da ddp kullanın: {known}"
    ),
    "tensor parallelism stays within a node; {num_gpus} GPUs are more than the {gpus_per_node} of one": (
        "tensör paralellik tek düğümde kalır; {num_gpus} GPU, bir düğümdeki {gpus_per_node} GPU'dan fazla"
    ),
    "transformers divides tensors of full fine-tuning and of LoRA on a 16-bit base only": (
        "transformers tensörleri yalnızca tam ince ayarda ve 16-bit temel modelli LoRA'da böler"
    ),
    "{given} GPUs do not divide the {heads} key/value heads of {model}": (
        "{given} GPU, {model} modelinin {heads} key/value head'ini eşit bölmez"
    ),
}

RUNS: dict[str, str] = {**_SEVERAL_GPUS}
