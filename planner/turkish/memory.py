"""The workbook's controls, memory, the dry run and their errors."""

__all__ = ["MEMORY"]

_CONTROLS = {
    "Model": "Model",
    "Method": "Yöntem",
    "Batch": "Batch",
    "Training step": "Eğitim adımı",
    "Card": "Kart",
    "Evaluation and saving": "Değerlendirme ve kayıt",
    "Search the catalogue": "Katalogda ara",
    "…or paste a config.json": "…ya da bir config.json yapıştırın",
    "for example Llama-3.1-8B": "örneğin Llama-3.1-8B",
    "Format of the base": "Temel modelin biçimi",
    "16 or 32 bit": "16 veya 32 bit",
    "4-bit nf4": "4-bit nf4",
    "4-bit fp4": "4-bit fp4",
    "4-bit GPTQ": "4-bit GPTQ",
    "Training stack": "Eğitim yazılımı",
    "Hugging Face Trainer": "Hugging Face Trainer",
    "TRL SFTTrainer": "TRL SFTTrainer",
    "LitGPT": "LitGPT",
    "torchtune": "torchtune",
    "Unsloth": "Unsloth",
    "transformers": "transformers",
    "4.50 and newer": "4.50 ve sonrası",
    "4.46 to 4.49": "4.46 - 4.49",
    "4.41 to 4.45": "4.41 - 4.45",
    "4.31 to 4.40": "4.31 - 4.40",
    "Triton cross-entropy": "Triton cross-entropy",
    "int8": "int8",
    "Precision": "Hassasiyet",
    "bf16 mixed (autocast)": "karışık bf16 (autocast)",
    "fp16 mixed (autocast)": "karışık fp16 (autocast)",
    "pure bf16": "saf bf16",
    "pure fp16": "saf fp16",
    "fp32": "fp32",
    "Optimizer": "Optimizer",
    "AdamW": "AdamW",
    "AdamW, fused": "AdamW, fused",
    "AdamW, 8-bit": "AdamW, 8-bit",
    "AdamW, paged": "AdamW, sayfalı (paged)",
    "AdamW, paged 8-bit": "AdamW, sayfalı 8-bit",
    "Adafactor": "Adafactor",
    "Lion": "Lion",
    "Lion, 8-bit": "Lion, 8-bit",
    "SGD": "SGD",
    "SGD with momentum": "momentumlu SGD",
    "Gradient checkpointing": "Gradient checkpointing",
    "on": "açık",
    "on (reentrant)": "açık (reentrant)",
    "off": "kapalı",
    "Attention": "Attention",
    "sdpa": "sdpa",
    "FlashAttention-2": "FlashAttention-2",
    "eager": "eager",
    "Loss": "Kayıp",
    "plain cross-entropy": "düz cross-entropy",
    "chunked": "parçalı",
    "Liger, fused": "Liger, fused",
    "cut cross-entropy": "cut cross-entropy",
    "LoRA on": "LoRA uygulanan katmanlar",
    "all linear layers": "tüm doğrusal katmanlar",
    "attention only": "yalnız attention",
    "Also trained whole": "Ayrıca tümüyle eğitilen",
    "none": "yok",
    "output head": "çıkış katmanı",
    "embeddings and output head": "embedding ve çıkış katmanı",
    "Saved as": "Kayıt biçimi",
    "checkpoint": "checkpoint",
    "Sequence length": "Sequence length",
    "Micro-batch size": "Micro-batch boyutu",
    "Gradient accumulation": "Gradient accumulation",
    "LoRA rank": "LoRA rank",
    "LoRA dropout": "LoRA dropout",
    "Trained layers": "Eğitilen katman sayısı",
    "Virtual tokens": "Sanal token sayısı",
    "Bottleneck size": "Darboğaz boyutu",
    "Evaluation batch": "Değerlendirme batch'i",
    "Double quantisation": "Çift kuantizasyon",
    "k-bit preparation (fp32 norms and head)": "k-bit hazırlığı (norm ve çıkış katmanı fp32)",
    "Rows are packed full": "Satırlar tam dolu (packing)",
    "Evaluation between steps": "Adımlar arasında değerlendirme",
    "Loop keeps the model's output": "Döngü modelin çıktısını tutuyor",
    "Experts as linear layers (transformers 4)": "Uzmanlar doğrusal katman (transformers 4)",
}

_METHODS = {
    "Full fine-tuning": "Tam fine-tuning",
    "Layer freezing": "Katman dondurma",
    "LoRA": "LoRA",
    "QLoRA": "QLoRA",
    "DoRA": "DoRA",
    "IA3": "IA3",
    "Prefix tuning": "Prefix tuning",
    "Prompt tuning": "Prompt tuning",
    "P-tuning": "P-tuning",
    "Bottleneck adapters": "Darboğaz adapter",
}

_PAGE = {
    "Fine-tuning memory planner": "Fine-tuning bellek planlayıcısı",
    "What fills the card, when, and on which cards the job fits": "Kartı ne zaman ne dolduruyor, iş hangi kartlara sığıyor",
    "Memory by method": "Yönteme göre bellek",
    "Memory at each instant of a step": "Bir adımın her anında bellek",
    "Against sequence length": "Sequence length'e göre",
    "Against micro-batch size": "Micro-batch boyutuna göre",
    "fits": "sığar",
    "tight": "sınırda",
    "does not fit": "sığmaz",
    "Fits {gpu} with {spare} to spare: needs about {device} of {usable}.": (
        "{gpu} kartına sığar, {spare} boş kalır: {usable} bellekten yaklaşık {device} gerekir."
    ),
    "Tight on {gpu}: needs about {device} of {usable}, and up to {high}: nine of ten published runs stayed within that.": (
        "{gpu} kartında sınırda: {usable} bellekten yaklaşık {device} gerekir, en çok {high}; yayımlanmış on koşudan dokuzu bu sınırın içinde kaldı."
    ),
    "Tight on {gpu}: needs about {device} of {usable}, probably too much; nine of ten published runs took {low} to {high}.": (
        "{gpu} kartında sınırda: {usable} belleğe karşı yaklaşık {device} gerekir, büyük olasılıkla fazla; yayımlanmış on koşudan dokuzu {low} ile "
        "{high} arasında kaldı."
    ),
    "Does not fit {gpu}: needs about {device}, which is {missing} more than its {usable}.": (
        "{gpu} kartına sığmaz: yaklaşık {device} gerekir, bu {usable} belleğinden {missing} fazladır."
    ),
    "Any one of these would make it fit: {changes}.": "Şunlardan herhangi biri sığdırır: {changes}.",
    "No single change makes it fit; combine several, or take a larger card.": (
        "Tek bir değişiklik sığdırmaya yetmiyor; birkaçını birleştirin ya da daha büyük bir kart seçin."
    ),
    "What would need less memory, and what it costs": "Belleği ne azaltır, bedeli nedir",
    "{action}: saves {saved} ({outcome}). Cost: {cost}.": "{action}: {saved} kazandırır ({outcome}). Bedeli: {cost}.",
    "then it fits": "o zaman sığar",
    "not enough alone": "tek başına yetmez",
    "Needs on the card": "Kartta gereken",
    "Headroom": "Boş kalan",
    "Largest micro-batch": "En büyük micro-batch",
    "Longest sequence": "En uzun sequence",
    "at this sequence length": "bu sequence length ile",
    "at this micro-batch": "bu micro-batch ile",
    "Smallest cards that hold it: {cards}": "Sığdığı en küçük kartlar: {cards}",
    "The methods side by side": "Yöntemler yan yana",
    "Every part of the peak: formula, numbers and source": "Tepe belleğin her parçası: formül, sayılar ve kaynak",
    "Cards that hold this job": "Bu işin sığdığı kartlar",
    "{segment}: {count} cards, the smallest is {card}": "{segment}: {count} kart, en küçüğü {card}",
    "{params} parameters, {layers} layers, hidden size {hidden}, vocabulary {vocabulary}": (
        "{params} parametre, {layers} katman, hidden size {hidden}, sözlük {vocabulary}"
    ),
    ", {active} active per token": ", token başına {active} etkin",
    "Memory is fullest at: {instant}, with {size} allocated.": "Bellek en dolu olduğu an: {instant}, {size} ayrılmış.",
    "From {first} at {low} to {last} at {high}.": "{first} için {low}, {last} için {high}.",
    "Trained": "Eğitilen",
    "Allocated": "Ayrılan (allocated)",
    "Reserved": "Tutulan (reserved)",
    "On the card": "Kartta",
    "Band": "Aralık",
    "Verdict": "Sonuç",
    "Change": "Değişiklik",
    "Saves": "Kazanç",
    "Outcome": "Sonrası",
    "Component": "Bileşen",
    "Size": "Boyut",
    "Formula": "Formül",
    "Numbers": "Sayılar",
    "Source": "Kaynak",
    "Usable": "Kullanılabilir",
    "Mind": "Dikkat",
    "consumer (GDDR)": "tüketici (GDDR)",
    "workstation": "iş istasyonu",
    "data centre": "veri merkezi",
    "no bf16": "bf16 yok",
    "no 4-bit kernels": "4-bit çekirdek yok",
    "no int8 kernels": "int8 çekirdek yok",
    "no FlashAttention-2": "FlashAttention-2 yok",
    "not NVIDIA: libraries differ": "NVIDIA değil: kütüphaneler farklı",
}

_REMEDIES = {
    "let go of the model's output before backward": "modelin çıktısını backward'dan önce bırakmak",
    "sdpa attention": "sdpa attention",
    "fused loss (Liger)": "fused kayıp (Liger)",
    "gradient checkpointing": "gradient checkpointing",
    "fused AdamW": "fused AdamW",
    "8-bit AdamW": "8-bit AdamW",
    "paged 8-bit AdamW": "sayfalı 8-bit AdamW",
    "no fp32 copy of embeddings, head and norms": "embedding, çıkış katmanı ve norm'ların fp32 kopyası olmadan",
    "a smaller micro-batch, accumulated more often": "daha küçük micro-batch, daha sık accumulation",
    "half the evaluation batch": "değerlendirme batch'i yarıya",
    "reentrant checkpointing": "reentrant checkpointing",
    "evaluation takes more passes": "değerlendirme daha çok geçiş alır",
    "the older variant, without hooks on saved tensors": "eski sürüm, saklanan tensörlere kanca yok",
    "weights in pure 16 bit": "ağırlıklar saf 16 bit",
    "half the sequence length": "sequence length yarıya",
    "half the LoRA rank": "LoRA rank yarıya",
    "nothing: the same result, faster": "yok: aynı sonuç, daha hızlı",
    "nothing: the same update in one kernel": "yok: aynı güncelleme tek çekirdekte",
    "one more package; the same loss": "bir paket daha; kayıp aynı",
    "about a third more time per step: each block runs forward twice": "adım başına yaklaşık üçte bir daha uzun: her blok iki kez ileri çalışır",
    "states rounded to 8 bits; results are close": "durumlar 8 bite yuvarlanır; sonuçlar yakındır",
    "steps slow down while states travel from host memory": "durumlar ana bellekten taşınırken adımlar yavaşlar",
    "less stable at high learning rates": "yüksek öğrenme oranında daha az kararlı",
    "more, smaller steps: somewhat slower": "daha çok, daha küçük adım: biraz daha yavaş",
    "small updates can be lost to rounding": "küçük güncellemeler yuvarlamada kaybolabilir",
    "trains a small share of the weights": "ağırlıkların küçük bir bölümü eğitilir",
    "base rounded to 4 bits; each step also unpacks weights": "temel model 4 bite yuvarlanır; her adımda ağırlıklar açılır",
    "longer examples are cut or split": "daha uzun örnekler kesilir ya da bölünür",
    "a smaller adapter can learn less": "daha küçük adapter daha az öğrenebilir",
}

_NOTES = {
    "{gpu} has no bf16 tensor cores: bf16 runs there at a fraction of its speed, or not at all; choose fp16": (
        "{gpu} kartında bf16 tensor çekirdeği yok: bf16 orada çok yavaş çalışır ya da hiç çalışmaz; fp16 seçin"
    ),
    "{gpu} has no 4-bit kernels in bitsandbytes": "{gpu} için bitsandbytes'ta 4-bit çekirdek yok",
    "{gpu} has no int8 kernels in bitsandbytes": "{gpu} için bitsandbytes'ta int8 çekirdek yok",
    "{gpu} has no FlashAttention-2 kernels: use sdpa": "{gpu} için FlashAttention-2 çekirdeği yok: sdpa kullanın",
    "{model_type} has no {asked} attention in transformers: eager is used": (
        "{model_type} için transformers'ta {asked} attention yok: eager kullanılır"
    ),
    "the experts are not quantised: transformers 5 keeps them as fused parameters, which bitsandbytes leaves alone": (
        "uzmanlar kuantize edilmez: transformers 5 onları bitsandbytes'ın dokunmadığı birleşik parametreler olarak tutar"
    ),
    "the optimizer's large states are paged: they may move to host memory, and are not counted on the card": (
        "optimizer'ın büyük durumları sayfalıdır: ana belleğe taşınabilir, kartta sayılmaz"
    ),
    "usable memory of {gpu} is estimated from the number on the box": "{gpu} kartının kullanılabilir belleği kutudaki sayıdan tahmin edildi",
}

_PARTS = {
    "weights": "ağırlıklar",
    "quantisation scales": "kuantizasyon ölçekleri",
    "adapters": "adapter",
    "gradients": "gradient",
    "optimizer states": "optimizer durumları",
    "activations": "aktivasyonlar",
    "logits and loss": "logit ve kayıp",
    "temporaries": "geçiciler",
    "batch and workspace": "batch ve çalışma alanı",
    "allocator and CUDA context": "bellek ayırıcı ve CUDA bağlamı",
    "load": "yükleme",
    "end of forward": "forward sonu",
    "backward, last block": "backward, son blok",
    "backward, first block": "backward, ilk blok",
    "optimizer step": "optimizer adımı",
    "save": "kayıt",
    "all the time": "her an",
    "peak": "tepe",
    "one block: ": "bir blok: ",
    "quantised weights": "kuantize ağırlıklar",
    "embeddings and head": "embedding ve çıkış katmanı",
    "block weights": "blok ağırlıkları",
    "weights not quantised": "kuantize edilmeyen ağırlıklar",
    "fused experts, not quantised": "birleşik uzmanlar, kuantize değil",
    "adapter parameters": "adapter parametreleri",
    "batch": "batch",
    "cuBLAS workspace": "cuBLAS çalışma alanı",
    "LoRA's part of the projection": "LoRA'nın projeksiyondaki payı",
    "rotary tables of all layers": "tüm katmanların rotary tabloları",
    "whole model before it is divided": "bölünmeden önce modelin tamamı",
    "an optimizer that runs in backward keeps no gradients to accumulate; give gradient_accumulation_steps 1": (
        "geri geçişte çalışan bir optimizer biriktirilecek gradyan tutmaz; gradient_accumulation_steps için 1 verin"
    ),
    "{what} cannot be run dry, as its layers are not among those installed; use the closed form": (
        "{what} kuru çalıştırılamaz, çünkü katmanları kurulu kitaplıklarda yok; kapalı formülü kullanın"
    ),
    "adapters, or a weight being cast or quantised": "adaptörler ya da dönüştürülmekte olan bir ağırlık",
    "gradient of the embedding": "embedding'in gradyanı",
    "DoRA: weights": "DoRA: ağırlıklar",
    "block inputs (checkpoints)": "blok girişleri (checkpoint)",
    "inputs of int8 layers": "int8 katmanların girişleri",
    "final norm and head input": "son norm ve çıkış katmanı girişi",
    "16-bit copies of weights": "ağırlıkların 16-bit kopyaları",
    "head in 16 bit": "16-bit çıkış katmanı",
    "weight made 16-bit": "16 bite açılan ağırlık",
    "gradients so far": "o ana kadarki gradient",
    "gradient of the head": "çıkış katmanının gradient'i",
    "gradients inside": "blok içi gradient",
    "logits kept by the loop": "döngünün tuttuğu logit'ler",
    "optimizer temporaries": "optimizer geçicileri",
    "evaluation pass": "değerlendirme geçişi",
    "virtual keys and values": "sanal key ve value",
    "layer being merged": "birleştirilen katman",
    "rotary tables": "rotary tabloları",
    "attention mask": "attention maskesi",
    "norm inputs": "norm girişleri",
    "query and key norms": "query ve key norm'ları",
    "latent norms": "latent norm'lar",
    "queries, keys, values": "query, key, value",
    "attention scores": "attention skorları",
    "attention output": "attention çıktısı",
    "inputs of trained linears": "eğitilen doğrusal katmanların girişleri",
    "inputs of adapters": "adapter girişleri",
    "rank-r products": "rank-r çarpımları",
    "dropout masks": "dropout maskeleri",
    "residual dropout masks": "residual dropout maskeleri",
    "DoRA: both results": "DoRA: iki sonuç",
    "IA3: scaled values": "IA3: ölçeklenen değerler",
    "bottleneck inputs": "darboğaz girişleri",
    "MLP: activation": "MLP: aktivasyon",
    "MLP: gate, up and activation": "MLP: gate, up ve aktivasyon",
    "experts: gate, up and activation": "uzmanlar: gate, up ve aktivasyon",
    "experts: routed rows": "uzmanlar: yönlendirilen satırlar",
    "experts with their LoRA added": "LoRA eklenmiş uzmanlar",
    "router": "router",
}

_ERRORS = {
    "PEFT has no prefix tuning with gradient checkpointing; give gradient_checkpointing off": (
        "PEFT'te prefix tuning gradient checkpointing ile çalışmaz; gradient checkpointing'i kapatın"
    ),
    "PEFT puts neither DoRA nor dropout on the fused experts of {model}; name attention layers as target_modules, or leave it out": (
        "PEFT {model} modelinin birleşik uzmanlarına DoRA ya da dropout koymaz; target_modules olarak attention katmanlarını verin ya da bunu bırakın"
    ),
    "these shapes make {params} parameters, more than any model has; check the sizes in config.json": (
        "bu boyutlar {params} parametre eder, hiçbir modelde bu kadar yok; config.json içindeki boyutları denetleyin"
    ),
    "{name} cannot be swept; the fields that can are {known}": "{name} taranamaz; taranabilen alanlar: {known}",
    "{name} must be whole numbers, at least one": "{name} tam sayılardan oluşmalı, en az bir tane",
    "{name} is {given}; it must be true or false": "{name} {given}; true ya da false olmalı",
    "the values do not fit together as arrays ({problem})": "değerler dizi olarak birbirine uymuyor ({problem})",
    "{name} is set, which the closed form does not count; the dry run may still serve, as it runs the model's own code": (
        "{name} açık; kapalı form bunu saymıyor, kuru çalıştırma modelin kendi kodunu yürüttüğü için yine işe yarayabilir"
    ),
    "no model named {name!r}": "{name!r} adlı bir model yok",
    "no model named {name!r}; did you mean {near}?": "{name!r} adlı bir model yok; şunu mu demek istediniz: {near}?",
    "no GPU named {name!r}": "{name!r} adlı bir GPU yok",
    "no GPU named {name!r}; did you mean {near}?": "{name!r} adlı bir GPU yok; şunu mu demek istediniz: {near}?",
    "no model is named; give a catalogue name, a config.json or a Hub id": "model adı verilmedi; bir katalog adı, config.json ya da Hub kimliği verin",
    "there is no field {name!r}": "{name!r} adlı bir alan yok",
    "{name} is missing, and nothing can be planned without it": "{name} eksik; o olmadan plan yapılamaz",
    "{name} is {given}; it must be {expected}": "{name} {given}; şunlardan biri olmalı: {expected}",
    "{name} is {given}; it must be more than {limit}": "{name} {given}; {limit} değerinden büyük olmalı",
    "{name} is {given}; it must be at least {limit}": "{name} {given}; en az {limit} olmalı",
    "{name} is {given}; it must be less than {limit}": "{name} {given}; {limit} değerinden küçük olmalı",
    "{name} is {given}; it must be at most {limit}": "{name} {given}; en çok {limit} olmalı",
    "{name} is {given}; it must be a number (a whole one for sizes and counts)": "{name} {given}; bir sayı olmalı (boyut ve adetlerde tam sayı)",
    "{name} is {given}, which is not a value that it can have": "{name} {given}; böyle bir değer alamaz",
    "{name} is {given}; {model} allows at most {limit}": "{name} {given}; {model} en çok {limit} değerine izin verir",
    "{name} is {given}; config.json must give a whole number there": "{name} {given}; config.json orada tam sayı vermeli",
    "a field of this {model_type} config.json is not a number ({problem})": "bu {model_type} config.json dosyasının bir alanı sayı değil ({problem})",
    "this is not JSON (line {line}: {problem}); paste the whole config.json of the model": (
        "bu JSON değil (satır {line}: {problem}); modelin config.json dosyasını bütünüyle yapıştırın"
    ),
    "config.json must be one JSON object; this is nested too deeply": "config.json tek bir JSON nesnesi olmalı; bu çok derin iç içe",
    "config.json must be one JSON object, this is a {kind}": "config.json tek bir JSON nesnesi olmalı, bu ise {kind}",
    "config.json holds a number that is too long to be one of a model": "config.json bir modele ait olamayacak kadar uzun bir sayı içeriyor",
    "this text has {length:,} characters; a config.json has a few thousand": "bu metin {length:,} karakter; bir config.json birkaç bin karakterdir",
    "model_type {given!r} has no closed form (known: {known}); the dry run may still serve, as it runs the model's own code": (
        "model_type {given!r} için kapalı form yok (bilinenler: {known}); kuru çalıştırma modelin kendi kodunu yürüttüğü için yine işe yarayabilir"
    ),
    "num_key_value_heads is {given}, which does not divide num_attention_heads ({heads})": (
        "num_key_value_heads {given}; num_attention_heads ({heads}) ona bölünmüyor"
    ),
    "num_experts_per_tok is {given}; it must be between 1 and the number of experts ({experts})": (
        "num_experts_per_tok {given}; 1 ile uzman sayısı ({experts}) arasında olmalı"
    ),
    "qlora needs a 4-bit base; give quantization nf4 or fp4, or method lora": "QLoRA 4-bit temel model ister; nf4 veya fp4 seçin ya da LoRA yöntemini kullanın",
    "method {method!r} does not exist on an {quantization} base; use quantization none, or one of {allowed}": (
        "{method!r} yöntemi {quantization} temel model üzerinde yok; kuantizasyonu kapatın ya da şunlardan birini seçin: {allowed}"
    ),
    "a quantised base computes in 16 bit; give precision bf16-mixed, fp16-mixed, bf16 or fp16": (
        "kuantize temel model 16 bitte hesaplar; bf16-mixed, fp16-mixed, bf16 veya fp16 hassasiyeti seçin"
    ),
    "modules_to_save belongs to LoRA, QLoRA, DoRA and IA3; leave it out": "modules_to_save yalnız LoRA, QLoRA, DoRA ve IA3 içindir; vermeyin",
    "flash attention has 16-bit kernels only; give attention sdpa, or another precision": (
        "flash attention yalnız 16-bit çekirdeklidir; sdpa ya da başka bir hassasiyet seçin"
    ),
    "{model_type} has no flash attention in transformers; give attention {known}": (
        "{model_type} için transformers'ta flash attention yok; attention olarak şunu verin: {known}"
    ),
    "method {method!r} has nothing to merge; give save checkpoint": "{method!r} yönteminde birleştirilecek bir şey yok; kayıt biçimi checkpoint olmalı",
    "target_modules is empty; name some of {known}, or all-linear": "target_modules boş; {known} içinden seçin ya da all-linear verin",
    "{model} has no linear layer {name!r}; did you mean {near!r}? (it has {known}, or all-linear)": (
        "{model} modelinde {name!r} doğrusal katmanı yok; {near!r} mi demek istediniz? (olanlar: {known}, ya da all-linear)"
    ),
    "{model} has no linear layer {name!r}; it has {known}, or all-linear": "{model} modelinde {name!r} doğrusal katmanı yok; olanlar: {known}, ya da all-linear",
}

_HUB = {
    "the catalogue has {near}": "katalogda şunlar var: {near}",
    "HF_HUB_OFFLINE is set, and config.json of {name!r} was not downloaded before; paste it": (
        "HF_HUB_OFFLINE ayarlı ve {name!r} için config.json daha önce indirilmemiş; yapıştırın"
    ),
    "the Hub cannot be reached, and config.json of {name!r} was not downloaded before; paste it, or try again later": (
        "Hub'a ulaşılamıyor ve {name!r} için config.json daha önce indirilmemiş; yapıştırın ya da sonra yeniden deneyin"
    ),
    "the Hub gave no config.json for {name!r} ({reason}); try again later, or paste it": (
        "Hub {name!r} için config.json vermedi ({reason}); sonra yeniden deneyin ya da yapıştırın"
    ),
    "the Hub has disabled {name!r}": "Hub {name!r} deposunu kapatmış",
    "the Hub has no model {name!r}, or it is private and the token in use may not read it": (
        "Hub'da {name!r} modeli yok, ya da özel ve kullanılan token okuyamıyor"
    ),
    "the Hub is read with huggingface_hub: pip install huggingface_hub": "Hub huggingface_hub ile okunur: pip install huggingface_hub",
    "the Hub refuses the token in use for {name!r} ({status}); log in again with `hf auth login`, or unset HF_TOKEN": (
        "Hub {name!r} için kullanılan token'ı reddediyor ({status}); `hf auth login` ile yeniden giriş yapın ya da HF_TOKEN'ı kaldırın"
    ),
    "the folder {path!r} has no config.json; give the folder of a saved model, or the file itself": (
        "{path!r} klasöründe config.json yok; kayıtlı bir modelin klasörünü ya da dosyanın kendisini verin"
    ),
    "there is no file or folder {path!r}": "{path!r} adlı dosya ya da klasör yok",
    "{name!r} has no config.json, so it is no model that transformers can load": "{name!r} içinde config.json yok, yani transformers'ın yükleyebileceği bir model değil",
    "{name!r} has no revision {revision!r}; see {page}/tree/main": "{name!r} için {revision!r} sürümü yok; bkz. {page}/tree/main",
    "{name!r} is gated: accept its licence at {page}, then log in with `hf auth login` or set HF_TOKEN": (
        "{name!r} erişimi kısıtlı: lisansını {page} adresinde kabul edin, sonra `hf auth login` ile giriş yapın ya da HF_TOKEN ayarlayın"
    ),
    "{name!r} is not a valid Hub id": "{name!r} geçerli bir Hub kimliği değil",
    "{name!r} is not in the catalogue, and the Hub is not asked here; paste the model's config.json": (
        "{name!r} katalogda yok ve burada Hub'a sorulmuyor; modelin config.json dosyasını yapıştırın"
    ),
    "{path!r} cannot be read ({problem})": "{path!r} okunamıyor ({problem})",
    "{path!r} has {size:,} bytes, so it is no config.json": "{path!r} {size:,} bayt, yani bir config.json değil",
    "{path!r} is not UTF-8 text; give a model's config.json or its folder": "{path!r} UTF-8 metin değil; bir modelin config.json dosyasını ya da klasörünü verin",
    "{path!r} is not a file; give a model's config.json or its folder": "{path!r} bir dosya değil; bir modelin config.json dosyasını ya da klasörünü verin",
}

_DRY_RUN = {
    "Dry run": "Kuru çalıştırma",
    "Cancel": "İptal",
    "cancelled": "iptal edildi",
    "The job's real training step on tensors without data: no GPU and no weights, about half a minute.": (
        "İşin gerçek eğitim adımı, verisi olmayan tensörlerle yürütülür: GPU da ağırlık da gerekmez, yaklaşık yarım dakika sürer."
    ),
    "A dry run needs packages that are missing here ({packages}): pip install 'finetune-planner[pilot]'": (
        "Kuru çalıştırma için burada eksik olan paketler gerekir ({packages}): pip install 'finetune-planner[pilot]'"
    ),
    "loading PyTorch and its libraries": "PyTorch ve kütüphaneleri yükleniyor",
    "building the model": "model kuruluyor",
    "step 1": "adım 1",
    "step 2": "adım 2",
    "step 1: forward and backward": "adım 1: forward ve backward",
    "step 2: forward and backward": "adım 2: forward ve backward",
    "step 1: optimizer": "adım 1: optimizer",
    "step 2: optimizer": "adım 2: optimizer",
    "replaying the allocator": "bellek ayırıcı yeniden oynatılıyor",
    "The settings have changed since; this is the dry run of {model}, {method}, {batch} x {length} tokens, on {gpu}.": (
        "Ayarlar sonradan değişti; bu, {model}, {method}, {batch} x {length} token, {gpu} için yapılan kuru çalıştırmadır."
    ),
    "Runs out of memory on {gpu} ({moment}): {asker} asks for {requested} with {allocated} allocated, {cached} cached, {free} free.": (
        "{gpu} kartında bellek biter ({moment}): {allocated} ayrılmış, {cached} önbellekte, {free} boşken {asker} {requested} ister."
    ),
    "Tight on {gpu}: the step runs through only as the allocator gives back what it cached; else it takes {device}.": (
        "{gpu} kartında sınırda: adım yalnız bellek ayırıcı önbelleğini geri verdiği için tamamlanır; yoksa {device} gerekirdi."
    ),
    "Fullest at: {instant}, with {size} allocated; the closed form has {closed} ({difference}).": (
        "En dolu an: {instant}, {size} ayrılmış; kapalı form {closed} diyor ({difference})."
    ),
    " The closed form's is at: {instant}, which a dry run does not pass through.": (
        " Kapalı formun en dolu anı: {instant}; kuru çalıştırma bu andan geçmez."
    ),
    "Run with {versions}: {blocks} of {layers} blocks in {seconds} s.": "{versions} ile çalıştırıldı: {layers} bloktan {blocks} tanesi, {seconds} sn.",
    " It took {size} of this machine's own memory.": " Bu makinenin kendi belleğinden {size} kullandı.",
    "The largest things alive at the peak:": "Tepe anında bellekte duran en büyük parçalar:",
    "Closed form and dry run, instant by instant": "Kapalı form ve kuru çalıştırma, an an",
    "What is alive at the dry run's peak": "Kuru çalıştırmanın tepe anında bellekte duranlar",
    "Instant": "An",
    "Closed form": "Kapalı form",
    "Difference": "Fark",
    "peak, allocated": "tepe, ayrılan (allocated)",
    "peak, reserved": "tepe, tutulan (reserved)",
    "peak, on the card": "tepe, kartta",
    "allocated": "ayrılan (allocated)",
    "reserved": "tutulan (reserved)",
    "allocations and releases, in their order": "ayırma ve bırakmalar, sırasıyla",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "a dry run needs the package {package!r}: pip install 'finetune-planner[pilot]'": (
        "kuru çalıştırma {package!r} paketini ister: pip install 'finetune-planner[pilot]'"
    ),
    "the dry run does not know {package} {found} (it knows {known}), and will not guess; install one of those": (
        "kuru çalıştırma {package} {found} sürümünü tanımıyor (tanıdığı: {known}) ve tahmin etmez; o sürümlerden birini kurun"
    ),
    "there is no CUDA behaviour {name!r} to switch off; there are {known}": "kapatılacak {name!r} adlı bir CUDA davranışı yok; olanlar: {known}",
    "{model} has {count:,} blocks that cannot be repeated from a few; a dry run traces at most {limit:,}": (
        "{model} modelinin {count:,} bloğu birkaçından çoğaltılamıyor; kuru çalıştırma en çok {limit:,} blok izler"
    ),
    "the blocks of {model} were not found, so it cannot be run dry": "{model} modelinin blokları bulunamadı, bu yüzden kuru çalıştırılamaz",
    "transformers {version} has no model_type {given!r}, so it cannot be run dry; the closed form may still know it": (
        "transformers {version} içinde {given!r} model_type'ı yok, bu yüzden kuru çalıştırılamaz; kapalı form yine de tanıyabilir"
    ),
    "transformers {version} has the experts of {model} fused, not as linears; leave experts_as_linears out, or use the closed form": (
        "transformers {version}, {model} modelinin uzmanlarını doğrusal katmanlar olarak değil, birleşik parametreler olarak tutar; experts_as_linears'ı bırakın ya da kapalı formu kullanın"
    ),
    "transformers {version} refuses this configuration of {given} ({problem})": "transformers {version} bu {given} yapılandırmasını kabul etmiyor ({problem})",
    "PEFT {version} refuses {method} on {model} ({problem})": "PEFT {version}, {model} üzerinde {method} yöntemini kabul etmiyor ({problem})",
    "the forward of {name} depends on the values of its data ({problem}), which a dry run does not have; use the closed form": (
        "{name} modelinin forward'ı verinin değerlerine bağlı ({problem}); kuru çalıştırmada veri yoktur; kapalı formu kullanın"
    ),
    "the dry run of {name} failed in its libraries ({problem}); use the closed form": (
        "{name} için kuru çalıştırma kütüphanelerin içinde başarısız oldu ({problem}); kapalı formu kullanın"
    ),
    "the dry run failed ({problem})": "kuru çalıştırma başarısız oldu ({problem})",
    "the dry run took more than {seconds} seconds and was stopped": "kuru çalıştırma {seconds} saniyeden uzun sürdü ve durduruldu",
    "the dry run's process cannot be started ({problem})": "kuru çalıştırmanın süreci başlatılamıyor ({problem})",
    "the dry run's process ended without an answer (exit status {status})": "kuru çalıştırmanın süreci yanıt vermeden bitti (çıkış kodu {status})",
    "the dry run's process gave an answer that cannot be read": "kuru çalıştırmanın süreci okunamayan bir yanıt verdi",
    "the allocator option {name!r} is unknown here; the known ones are {known}": "{name!r} bellek ayırıcı seçeneği burada bilinmiyor; bilinenler: {known}",
    "{path!r} cannot be written ({problem})": "{path!r} yazılamıyor ({problem})",
    "this process has a torch.distributed group; start the dry run of several GPUs in another process": (
        "bu süreçte bir torch.distributed grubu var; çoklu GPU kuru çalıştırmasını başka bir süreçte başlatın"
    ),
    "hybrid sharding needs two or more whole nodes of two or more GPUs; {num_gpus} GPUs are not that with {gpus_per_node} a node": (
        "hibrit parçalama, iki ya da daha çok GPU'lu en az iki tam düğüm ister; düğüm başına {gpus_per_node} ile {num_gpus} GPU bunu karşılamaz"
    ),
}

MEMORY: dict[str, str] = {
    **_CONTROLS, **_METHODS, **_PAGE, **_REMEDIES, **_NOTES, **_PARTS, **_ERRORS, **_HUB, **_DRY_RUN,
}  # fmt: skip
