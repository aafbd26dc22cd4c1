"""The pilot: its card, its log, its comparison."""

__all__ = ["PILOTS"]

PILOTS: dict[str, str] = {
    "Part": "Parça",
    "Pilot": "Pilot",
    "forward, peak": "forward, tepe",
    "loss and backward, peak": "kayıp ve backward, tepe",
    "optimizer step, peak": "optimizer adımı, tepe",
    "load, peak": "yükleme, tepe",
    "one optimizer step": "bir optimizer adımı",
    "on the card": "kartta",
    "a pilot needs {packages}: pip install 'finetune-planner[pilot]'": "pilot için {packages} gerekir: pip install 'finetune-planner[pilot]'",
    "no GPU is attached; rent one (planner offers), or try the pilot on the processor with --cpu": (
        "bağlı GPU yok; bir tane kiralayın (planner offers) ya da pilotu --cpu ile işlemcide deneyin"
    ),
    "Start the pilot": "Pilotu başlat",
    "Real steps of this job on {cards}; random weights take the same bytes as trained ones.": (
        "Bu işin gerçek adımları {cards} üzerinde; rastgele ağırlıklar eğitilmişlerle aynı yeri kaplar."
    ),
    "What the pilot does": "Pilotun yapacağı",
    "a few steps": "birkaç adım",
    "two depths, extrapolated": "iki derinlik, modelin tamamına genişletilir",
    "the whole loop, for some time": "belirli bir süre eğitim döngüsünün tamamı",
    "find the largest micro-batch": "en büyük mikro batch'i bul",
    "Optimizer steps": "Optimizer adımı",
    "Minutes": "Dakika",
    "Training rows": "Eğitim satırları",
    "Trained weights": "Eğitilmiş ağırlıklar",
    "random tokens": "rastgele token'lar",
    "random ones": "rastgele",
    "{name!r} is no name that a pilot takes; choose one that is offered": "{name!r} pilotun kabul ettiği bir ad değil; sunulanlardan birini seçin",
    "the pilot's folder has no {name!r}, or it leads out of the folder; choose one that is offered": (
        "pilot klasöründe {name!r} yok ya da klasörün dışına çıkıyor; sunulanlardan birini seçin"
    ),
    "the folder {folder!r} that pilots may read is not there": "pilotların okuyabileceği {folder!r} klasörü yok",
    "this pilot takes {num_gpus} GPUs, and {attached} are attached": "bu pilota {num_gpus} GPU gerekir, bağlı olan {attached}",
    "the pilot has been asked to end; it is ended by force if it does not within {seconds} s": (
        "pilottan bitmesi istendi; {seconds} sn içinde bitmezse zorla sonlandırılır"
    ),
    "No GPU is attached: the pilot runs on the processor, for trying, and measures no GPU memory.": (
        "Bağlı GPU yok: pilot denemek için işlemcide çalışır ve GPU belleği ölçmez."
    ),
    "The plan beside the pilot": "Planın yanında pilot",
    "model loaded": "model yüklendi",
    "adapters attached": "adaptörler takıldı",
    "the process has begun": "süreç başladı",
    "loss": "kayıp",
    "no loss is a number": "hiçbir kayıp sayı değil",
    "a pilot can run here, on {cards}": "pilot burada çalışabilir: {cards}",
    "only a pilot of the whole model on one GPU calibrates the plan": "planı yalnızca modelin tamamının tek GPU'da çalıştığı bir pilot kalibre eder",
    "a pilot is one of these: so many minutes, shallow, or a search for the largest micro-batch": "bir pilot şunlardan yalnızca biridir: belirli bir süre, sığ, ya da en büyük mikro batch araması",
    "a shallow pilot has random weights; leave out either shallow or weights": "sığ pilotun ağırlıkları rastgeledir; shallow ya da weights seçeneğini çıkarın",
    "{path!r} is no file or folder; give JSONL, CSV, Parquet, Arrow or text": "{path!r} bir dosya ya da klasör değil; JSONL, CSV, Parquet, Arrow ya da metin verin",
    "on several GPUs the pilot runs ddp, or FSDP2 without offload, on one machine": "birden çok GPU'da pilot tek makinede ddp ya da offload olmadan FSDP2 ile çalışır",
    "on several GPUs the pilot has no loss scaler; give precision bf16-mixed": "birden çok GPU'da pilotun kayıp ölçekleyicisi yoktur; precision için bf16-mixed verin",
    "shallow pilots and searches for the largest micro-batch run on one GPU; leave num_gpus out": "sığ pilot ve en büyük mikro batch araması tek GPU'da çalışır; num_gpus seçeneğini çıkarın",
    "no row of {path!r} has text that a pilot could train on": "{path!r} dosyasının hiçbir satırında pilotun eğitimde kullanabileceği metin yok",
    "the weights in {weights!r} have {name} {found}, the job's model has {asked}; name the same model in both": "{weights!r} içindeki ağırlıklarda {name} {found}, işin modelinde {asked}; ikisinde de aynı modeli verin",
    "the weights {weights!r} cannot be loaded ({problem}); give a folder with safetensors, or leave weights out": "{weights!r} ağırlıkları yüklenemiyor ({problem}); safetensors içeren bir klasör verin ya da weights seçeneğini çıkarın",
    "step {step}: {time}, loss {loss}": "adım {step}: {time}, kayıp {loss}",
    "step begun": "adım başladı",
    "blocks done": "bloklar bitti",
    "checkpoint written": "checkpoint yazıldı",
    "Extrapolated to the whole model from models of {blocks} blocks.": "{blocks} bloklu modellerden modelin tamamına genişletildi.",
    "The largest micro-batch that went through is {size}, of {count} tried.": "Denenen {count} boyuttan geçen en büyük mikro batch: {size}.",
    "{rows} rows were read and {failed} of them had no text; tokens are those of {tokenizer}.": "{rows} satır okundu, {failed} satırda metin yoktu; token'lar {tokenizer} ile ayrıldı.",
    "Waiting for data took {share} of the steps' time.": "Veri beklemek adım süresinin {share} kadarını aldı.",
    "The last evaluation's loss is {loss}.": "Son değerlendirmenin kaybı {loss}.",
    "A checkpoint is {size} and took {time} to write.": "Bir checkpoint {size} tutuyor, yazılması {time} sürdü.",
    "The driver's figures are missing ({problem}).": "Sürücünün ölçümleri eksik ({problem}).",
    "step {step} of {of}: {time}, loss {loss}": "adım {step}/{of}: {time}, kayıp {loss}",
    "On the processor: sizes of what stays are real, peaks and times are no GPU's.": (
        "İşlemcide: kalıcı olanların boyutları gerçektir, tepe değerler ve süreler GPU'nunki değildir."
    ),
    "The record is {path}.": "Kayıt: {path}.",
    "the pilot was cancelled after {steps} of {asked} steps": "pilot {asked} adımın {steps} tanesinden sonra durduruldu",
    "the pilot ran out of memory after {steps} of {asked} steps, in the phase: {what} ({problem})": (
        "pilotun belleği {asked} adımın {steps} tanesinden sonra tükendi; aşama: {what} ({problem})"
    ),
    "loading the model": "modelin yüklenmesi",
    "attaching adapters": "adaptörlerin takılması",
    "loss and backward": "kayıp ve backward",
    "writing a checkpoint": "checkpoint yazımı",
    "When memory ran out, tensors held {allocated} and PyTorch {reserved} of the card's {total}.": (
        "Bellek tükendiğinde kartın {total} belleğinin {allocated} kadarı tensörlerde, {reserved} kadarı PyTorch'taydı."
    ),
    "the pilot failed after {steps} of {asked} steps ({problem})": "pilot {asked} adımın {steps} tanesinden sonra başarısız oldu ({problem})",
    "the pilot's process died after {steps} of {asked} steps ({problem})": (
        "pilotun süreci {asked} adımın {steps} tanesinden sonra öldü ({problem})"
    ),
    "the pilot went through: {steps} steps": "pilot tamamlandı: {steps} adım",
    "the plan holds: {name} is furthest off, by {share}": "plan tutuyor: en uzaktaki {name}, fark {share}",
    "the plan is off: {name} by {share}": "plan sapıyor: {name}, fark {share}",
    "Residual": "Artık",
    "Closed form off by": "Kapalı formun sapması",
    "Dry run off by": "Kuru çalıştırmanın sapması",
    "Closed form, dry run and pilot by component": "Bileşen bileşen kapalı form, kuru çalıştırma ve pilot",
    "CUDA context": "CUDA bağlamı",
    "allocator slack": "bellek ayırıcının payı",
    "share of the peak rate": "tepe hızın payı",
    "evaluation, peak": "değerlendirme, tepe",
    "save, peak": "kaydetme, tepe",
    "tokens per second": "saniyede token",
    "the dry run of the same job, for the comparison": "karşılaştırma için aynı işin kuru çalıştırması",
    "Assumption": "Varsayım",
    "Before": "Önce",
    "After": "Sonra",
    "Where it holds, or why it is refused": "Nerede geçerli, ya da neden reddedildi",
    "What this pilot says about the plan's assumptions": "Bu pilotun planın varsayımları hakkında söylediği",
    "Use these in the plan": "Planda bunları kullan",
    "Use the published figures again": "Yayımlanmış değerlere dön",
    "planner estimate --pilot {path} plans with these figures.": "planner estimate --pilot {path} bu değerlerle plan yapar.",
    "{name} as measured: {source}": "{name}, ölçülen değeriyle: {source}",
    "no known cause": "bilinen bir nedeni yok",
    "within the band that the plan states": "planın verdiği aralığın içinde",
    "each of {count} 4-bit layers has tables of its format beside its scales": (
        "4 bitlik {count} katmanın her birinde ölçeklerin yanında biçimin tabloları da durur"
    ),
    "rotary frequencies are buffers, and no weights": "rotary frekansları ağırlık değil, tampondur (buffer)",
    "{size} of paged states are outside PyTorch's allocator": "sayfalanan durumların {size} kadarı PyTorch'un bellek ayırıcısının dışındadır",
    "{size} were in use on the card before the pilot": "kartta pilottan önce de {size} kullanımdaydı",
    "expandable segments leave less unused than the plan assumes": (
        "genişleyebilen segmentler (expandable segments) planın varsaydığından daha az boşluk bırakır"
    ),
    "the allocator reserves {percent} beyond what is allocated; the plan assumes {assumed_percent}": (
        "bellek ayırıcı, ayrılandan {percent} fazlasını tutar; planın varsayımı {assumed_percent}"
    ),
    "the card is at its power limit: {watts} of {limit} W": "kart güç sınırında: {limit} W'ın {watts} W'ı",
    "the card waits for the host: it is busy {percent} of the time": "kart ana makineyi bekliyor: zamanın yalnız {percent} kadarında meşgul",
    "a pilot on the processor says nothing about a GPU; run it on one to calibrate the plan": (
        "işlemcideki pilot GPU hakkında bir şey söylemez; planı kalibre etmek için bir GPU'da çalıştırın"
    ),
    "only a pilot that went through calibrates the plan; run it to its end": (
        "planı yalnız tamamlanmış bir pilot kalibre eder; pilotu sonuna kadar çalıştırın"
    ),
    "the catalogue has no card named {name!r}, so its pilot cannot calibrate the plan": (
        "katalogda {name!r} adlı kart yok; bu yüzden pilotu planı kalibre edemez"
    ),
    "the driver's own figure (NVML) is missing from the record": "kayıtta sürücünün kendi değeri (NVML) eksik",
    "{size} is not what a CUDA context takes ({low} to {high}): something else is in the figure": (
        "{size}, bir CUDA bağlamının tuttuğu aralıkta değil ({low} – {high}): değerin içinde başka bir şey var"
    ),
    "for cards of compute capability {capability} with the same driver": (
        "aynı sürücüyle, hesaplama yeteneği (compute capability) {capability} olan kartlar için"
    ),
    "the record has no peaks of GPU memory": "kayıtta GPU belleğinin tepe değerleri yok",
    "{percent} beyond what is allocated is not between 0 and {most_percent}: the record contradicts itself, or the run was unusual": (
        "ayrılandan {percent} fazlası 0 ile {most_percent} arasında değil: kayıt kendisiyle çelişiyor ya da çalışma olağandışıydı"
    ),
    "for {method} with the attention kernel {kernel}, on any card": "{kernel} attention çekirdeğiyle {method} için, her kartta",
    "the record has too few steps to tell how long one takes": "kayıttaki adımlar, birinin ne kadar sürdüğünü söylemeye yetmez",
    "only {percent} of this step is matrix multiplications; a larger batch would tell": (
        "bu adımın yalnız {percent} kadarı matris çarpımı; daha büyük bir batch bilgi verirdi"
    ),
    "no share between a tenth and all of the peak gives a step as long as this one": (
        "tepe hızın onda biri ile tamamı arasında hiçbir pay bu uzunlukta bir adım vermez"
    ),
    "on {gpu} only: another card reaches another share": "yalnız {gpu} kartında: başka bir kart başka bir paya ulaşır",
    "{folder!r} holds no pilot ({problem})": "{folder!r} içinde pilot yok ({problem})",
    "the pilot cannot be started in {folder!r} ({problem})": "pilot {folder!r} içinde başlatılamıyor ({problem})",
    "{path!r} is no record of a pilot ({problem})": "{path!r} bir pilot kaydı değil ({problem})",
    "the pilot runs the plain loss only; leave loss out": "pilot yalnızca sade kaybı çalıştırır; loss seçeneğini bırakın",
}
