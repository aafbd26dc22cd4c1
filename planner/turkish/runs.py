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

_TIME = {
    "matrix multiplications": "matris çarpımları",
    "output head and loss": "çıkış başı ve kayıp",
    "attention": "attention",
    "memory-bound operators": "belleğe bağlı işlemler",
    "dequantisation": "geri nicemleme",
    "recomputation": "yeniden hesaplama",
    "communication not hidden": "gizlenemeyen iletişim",
    "input and launches": "veri girişi ve kernel başlatma",
    "whole step": "adımın tamamı",
    "peak rate": "tepe hızı",
    "memory bandwidth": "bellek bant genişliği",
    "cleaning": "temizleme",
    "tokenising": "token'lara ayırma",
    "provisioning and boot": "makinenin ayrılması ve açılışı",
    "environment": "ortam kurulumu",
    "model download": "modelin indirilmesi",
    "data transfer": "veri aktarımı",
    "training": "eğitim",
    "evaluation": "değerlendirme",
    "checkpoint writes": "checkpoint yazımı",
    "merge and export": "birleştirme ve dışa aktarma",
    "hand-over": "teslim",
    "deletion of data": "verinin silinmesi",
    "machine is paid": "makine ücretli",
    "no machine is paid": "makine ücreti yok",
    "hours": "saat",
    "minutes": "dakika",
    "yes": "evet",
    "no": "hayır",
}

_SPEED_PROBLEMS = {
    "the {what} of {gpu} is not known, so its speed cannot be predicted; choose another card": (
        "{gpu} için {what} bilinmiyor, bu yüzden hızı öngörülemez; başka bir kart seçin"
    ),
    "neither NVLink nor the PCIe generation of {gpu} is known, so its speed among several cards cannot be predicted; choose another card": (
        "{gpu} için ne NVLink ne de PCIe nesli biliniyor, bu yüzden birkaç kartla hızı öngörülemez; başka bir kart seçin"
    ),
    "the network between nodes is not known, so the speed of {nodes} nodes cannot be predicted; give its bytes per second, or stay on one node": (
        "düğümler arası ağ bilinmiyor, bu yüzden {nodes} düğümün hızı öngörülemez; saniyedeki bayt sayısını verin ya da tek düğümde kalın"
    ),
}

_STORAGE = {
    "network volume": "ağ diski",
    "SATA SSD": "SATA SSD",
    "NVMe": "NVMe",
    "object storage": "nesne deposu",
    "dataset": "veri kümesi",
    "token cache": "token önbelleği",
    "checkpoints": "checkpoint'ler",
    "merged model": "birleştirilmiş model",
    "adapter": "adaptör",
    "optimizer states and master weights": "optimizer durumları ve ana ağırlıklar",
    "tokenizer, scheduler and random states": "tokenizer, scheduler ve rastgelelik durumları",
    "processes": "süreçler",
    "data loader": "veri yükleyici",
    "tensors being loaded": "yüklenmekte olan tensörler",
    "model on each rank, cast": "her rank'ta dönüştürülen model",
    "checkpoint being written": "yazılmakta olan checkpoint",
    "finished model": "bitmiş model",
    "frozen weights, for resuming": "devam etmek için dondurulmuş ağırlıklar",
    "the same weights, for resuming": "devam etmek için aynı ağırlıklar",
    "model on its first rank": "ilk rank'taki model",
    "base and adapter being merged": "birleştirilen temel model ve adaptör",
    "paged optimizer states": "sayfalı optimizer durumları",
    "offloaded states": "ana belleğe taşınan durumlar",
    "RAM": "RAM",
    "disk": "disk",
    "network between machines": "makineler arası ağ",
    "machine time": "makine süresi",
    "storage while running": "çalışırken depolama",
    "storage while stopped": "durdurulmuşken depolama",
    "egress of the results": "sonuçların dışarı aktarımı",
    "together": "toplam",
}

_OFFERS = {
    "Memory": "Bellek",
    "Cards and offers": "Kartlar ve teklifler",
    "Data": "Veri",
    "Checkpoints and disk": "Checkpoint'ler ve disk",
    "Days the disk is kept afterwards": "Diskin sonradan saklandığı gün",
    "Limits": "Sınırlar",
    "The provider has": "Sağlayıcıda olsun",
    "Training examples": "Eğitim örneği",
    "Tokens per example": "Örnek başına token",
    "Epochs": "Epoch",
    "Rows per optimizer step": "Optimizer adımı başına satır",
    "Examples evaluated per epoch": "Epoch başına değerlendirilen örnek",
    "Steps between checkpoints": "Checkpoint'ler arası adım",
    "Checkpoints kept": "Saklanan checkpoint",
    "Written to": "Yazıldığı yer",
    "Interruptions per hour": "Saatte kesinti",
    "Done within (hours)": "En geç (saat)",
    "For at most (US dollars)": "En çok (ABD doları)",
    "Spot machines": "Spot makineler",
    "Storage survives a stop": "Depolama durdurunca kalır",
    "No fee for what leaves": "Veri çıkışı ücretsiz",
    "Billed by second or minute": "Saniye ya da dakika ile ücretlenir",
    "SSH": "SSH",
    "Own Docker images": "Kendi Docker imajınız",
    "Docker images": "Docker imajları",
    "Jupyter": "Jupyter",
    "Machines are connected": "Makineler birbirine bağlı",
    "Data are prepared on the rented machine": "Veri kiralanan makinede hazırlanır",
    "Provider": "Sağlayıcı",
    "Instance": "Makine türü",
    "Cost": "Maliyet",
    "Done after": "Bitiş süresi",
    "Tokens/s": "Token/s",
    "Micro-batch": "Micro-batch",
    "Price": "Fiyat",
    "Price date": "Fiyat tarihi",
    "Stage": "Aşama",
    "Starts after": "Başlangıç",
    "Takes": "Süre",
    "Share": "Pay",
    "Machine paid": "Makine ücretli",
    "Times of single stages, in minutes": "Tek tek aşama süreleri, dakika",
    "What there is to do, and what it may take": "Yapılacak iş ve koşulları",
    "From the first stage to the last": "İlk aşamadan son aşamaya",
    "Cost against time": "Süreye karşı maliyet",
    "Fetch today's prices": "Bugünün fiyatlarını al",
    "Offer": "Teklif",
    "Offers": "Teklifler",
    "Cheapest": "En ucuz",
    "Fastest": "En hızlı",
    "any": "hepsi",
    "Offers that answer, the cheapest first": "Uygun teklifler, en ucuzdan başlayarak",
    "Offers that are no answer, and why": "Uygun olmayan teklifler ve nedenleri",
    "Stages, formulas and sources": "Aşamalar, formüller ve kaynaklar",
    "The bill": "Fatura",
    "One optimizer step": "Bir optimizer adımı",
    "Disk of one node": "Bir düğümün diski",
    "Host memory of one node": "Bir düğümün ana belleği",
    "Training in numbers": "Sayılarla eğitim",
    "On demand and spot": "Talep üzerine ve spot",
    "on demand": "talep üzerine",
    "spot": "spot",
    "a network between machines": "makineler arası ağ",
    "storage that survives a stop": "durdurunca kalan depolama",
    "free egress": "ücretsiz veri çıkışı",
    "billing by the second or minute": "saniye ya da dakika ile ücretlendirme",
    "cost, USD": "maliyet, USD",
    "done after, hours": "bitiş süresi, saat",
    "headroom, %": "boşluk, %",
    "offers": "teklifler",
    "not beaten in both": "ikisinde birden geçilemeyenler",
    "one GPU": "tek GPU",
    "date not known": "tarihi bilinmiyor",
    "{date}, {days} days old": "{date}, {days} günlük",
    "about {date}, up to {days} days old": "yaklaşık {date}, en çok {days} günlük",
    "{price} per hour": "saatte {price}",
    "up to {usd}": "en çok {usd}",
    "not known, at most {usd}": "bilinmiyor, en çok {usd}",
    "not known: {names}": "bilinmiyor: {names}",
    "{count} more offers that answer": "uygun {count} teklif daha",
    "{count} offers": "{count} teklif",
    "left out: {count} of card {name}": "dışarıda bırakıldı: {name} kartından {count} adet",
    "{count} offers answer; the cheapest costs {usd} and takes {time}, the fastest costs {dear} and takes {fast}.": (
        "{count} teklif uygun; en ucuzu {usd} ve {time} sürer, en hızlısı {dear} ve {fast} sürer."
    ),
    "No offer answers these wishes.": "Bu koşullara uyan teklif yok.",
    "{where}: no answer, {why}": "{where}: uygun değil, {why}",
    "{where}: {usd}, done after {time}; {way}, micro-batch {batch}; price of {date}": (
        "{where}: {usd}, {time} içinde biter; {way}, micro-batch {batch}; fiyat {date}"
    ),
    "List prices of {first} to {last}, before tax; they move monthly. Ask the provider before you rely on one.": (
        "{first} ile {last} arasındaki liste fiyatları, vergi hariç; her ay değişirler. Güvenmeden önce sağlayıcıya sorun."
    ),
    "{total} from first to last, {billed} of it with a machine that is paid; the longest stage is {name}.": (
        "Baştan sona {total}, bunun {billed} kadarında makine ücretli; en uzun aşama: {name}."
    ),
    "no on-demand price": "talep üzerine fiyatı yok",
    "no spot price": "spot fiyatı yok",
    "another provider": "başka bir sağlayıcı",
    "region is {region}": "bölgesi {region}",
    "region is not stated": "bölgesi belirtilmemiş",
    "has no {what}": "{what} yok",
    "not known to have {what}": "{what} olduğu bilinmiyor",
    "not done by the deadline": "süreye yetişmiyor",
    "not done in ten years": "on yılda bitmiyor",
    "over the budget": "bütçeyi aşıyor",
    "lacks {missing} on each {gpu}": "her {gpu} kartında {missing} eksik",
    "needs {needed} of {name}, has {has}": "{needed} {name} gerekir, {has} var",
    "{count} GPUs, but only {rows} rows per optimizer step": "{count} GPU var, ama optimizer adımı başına yalnızca {rows} satır",
    "{gpu} is not in the catalogue of cards": "{gpu} kart kataloğunda yok",
    "{rows} rows per optimizer step are not shared evenly by {count} GPUs": "optimizer adımı başına {rows} satır {count} GPU'ya eşit dağılmaz",
    "tight: may need {high} on a card": "sınırda: kartta {high} gerekebilir",
    "optimizer steps": "optimizer adımı",
    "tokens trained on": "eğitilen token",
    "padding": "dolgu",
    "GPU-hours": "GPU-saat",
    "price per hour": "saatlik fiyat",
    "expected time of training": "eğitimin beklenen süresi",
    "standard deviation": "standart sapma",
    "standard deviation of the cost": "maliyetin standart sapması",
    "interruptions expected": "beklenen kesinti",
    "expected cost": "beklenen maliyet",
    "chance by the deadline": "süreye yetişme olasılığı",
}

_SPOT = {
    "Spot at {rate} interruptions an hour: {mean} expected for training and checkpoints (standard deviation {sd}), {undisturbed} "
    "without interruption; {count} interruptions expected, {lost} of work lost.": (
        "Saatte {rate} kesintiyle spot: eğitim ve checkpoint'ler için beklenen süre {mean} (standart sapma {sd}), kesintisiz {undisturbed}; "
        "beklenen kesinti {count}, yitirilen iş {lost}."
    ),
    "A checkpoint takes {write}. Best interval: {best} (Young {young}, Daly {daly}), {there} expected; yours: {chosen}, {here} expected.": (
        "Bir checkpoint {write} sürer. En iyi aralık: {best} (Young {young}, Daly {daly}), beklenen {there}; sizinki: {chosen}, beklenen {here}."
    ),
    "Nothing interrupts: checkpoints cost only their writing.": "Kesinti yok: checkpoint'lerin tek bedeli yazılmaları.",
    "On demand ({price} per hour) costs the same from {even} interruptions an hour on.": (
        "Talep üzerine (saatte {price}), saatte {even} kesintiden sonra aynı maliyete gelir."
    ),
    "Chance to be done within {time}: {chance}.": "{time} içinde bitme olasılığı: {chance}.",
}

_PROBLEMS = {
    "a probability of {given} has no time; it must be between 0 and 0.9999": (
        "{given} olasılığının karşılığı olan bir süre yok; 0 ile 0,9999 arasında olmalı"
    ),
    "no GPU named {name!r}, but several whose name holds it; which one: {candidates}?": (
        "{name!r} adında bir GPU yok, ama adında bu geçen birkaç tane var; hangisi: {candidates}?"
    ),
    "no provider named {name!r}": "{name!r} adında bir sağlayıcı yok",
    "no provider named {name!r}; did you mean {near}?": "{name!r} adında bir sağlayıcı yok; şunu mu demek istediniz: {near}?",
    "an offer needs a price, on demand or spot": "bir teklifin fiyatı olmalı, talep üzerine ya da spot",
    "{name} is {price}; a median is not below the lowest price": "{name} {price}; ortanca en düşük fiyatın altında olamaz",
    "{name} is {price}; more than {limit} USD per GPU and hour is taken for a mistake": (
        "{name} {price}; GPU başına saatte {limit} USD'den fazlası yanlış sayılır"
    ),
    "unverified names {name!r}, which is not a field of a provider": "unverified {name!r} diyor; sağlayıcının böyle bir alanı yok",
    "no prices came from {provider} ({problem})": "{provider} fiyat vermedi ({problem})",
    "prices are refreshed with gpuhunt: pip install 'finetune-planner[prices]'": (
        "fiyatlar gpuhunt ile yenilenir: pip install 'finetune-planner[prices]'"
    ),
    "prices of {name!r} cannot be refreshed; these can: {known}": "{name!r} fiyatları yenilenemez; yenilenebilenler: {known}",
    "the refreshed prices in {path!r} cannot be read ({problem}); those that ship are used, refresh to replace them": (
        "{path!r} içindeki yenilenmiş fiyatlar okunamıyor ({problem}); paketle gelenler kullanılıyor, değiştirmek için yenileyin"
    ),
    "stage {name!r} cannot take {given} seconds": "{name!r} aşaması {given} saniye süremez",
    "there is no stage {name!r}; the stages are {known}": "{name!r} diye bir aşama yok; aşamalar: {known}",
    "{name} is {given}; it must be a number": "{name} {given}; bir sayı olmalı",
}

RUNS: dict[str, str] = {**_SEVERAL_GPUS, **_TIME, **_SPEED_PROBLEMS, **_STORAGE, **_OFFERS, **_SPOT, **_PROBLEMS}
