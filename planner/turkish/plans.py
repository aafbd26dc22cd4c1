"""The plan file, its five steps, links, exports, records and the report."""

__all__ = ["PLANS"]

_FILE = {
    "{name} seems to hold {kind}; leave it out: plans, records and links are shared; set it in the environment of the machine": "{name} alanında gizli bilgi var gibi ({kind}); çıkarın: planlar, kayıtlar ve bağlantılar paylaşılır; gizli bilgiyi makinenin ortam değişkenlerinde tanımlayın",
    "there is no card {given!r} in the catalogue; give its id": "katalogda {given!r} diye bir kart yok; kartın kimliğini verin",
    "there is no provider {given!r} in the catalogue; give its id": "katalogda {given!r} diye bir sağlayıcı yok; sağlayıcının kimliğini verin",
    "{name!r} is no plan: it is not JSON ({problem})": "{name!r} plan değil: JSON değil ({problem})",
    "{name!r} is no plan: it is a JSON {kind}, not an object": "{name!r} plan değil: JSON nesnesi değil, {kind}",
    "{name!r} is no plan: its version is {version!r}": "{name!r} plan değil: sürümü {version!r}",
    "{name!r} was written by a newer planner (version {version}; this one reads up to {known}); update the planner": "{name!r} daha yeni bir planlayıcıyla yazılmış (sürüm {version}; bu sürüm en çok {known} okur); planlayıcıyı güncelleyin",
    "{name!r} cannot be read as a plan: {problem}": "{name!r} plan olarak okunamıyor: {problem}",
    "{name!r} is no plan: it has neither a version nor the job of an estimate": "{name!r} plan değil: ne sürümü ne de bir tahminin işi var",
    "there is no plan file {path!r}": "{path!r} diye bir plan dosyası yok",
    "{path!r} has {size:,} bytes, so it is no plan": "{path!r} {size:,} bayt, plan olamaz",
    "{path!r} cannot be read ({problem})": "{path!r} okunamıyor ({problem})",
    "the plan's texts are too long for a link ({length:,} characters); save it as a file": "planın metinleri bağlantı için çok uzun ({length:,} karakter); dosya olarak kaydedin",
    "the link holds no plan, or was cut off; ask for it again, or for the plan file": "bağlantıda plan yok ya da bağlantı kesilmiş; yeniden isteyin ya da plan dosyasını isteyin",
    "the machine belongs to a member of a marketplace": "makine bir pazar yeri üyesine ait",
}
_STEPS = {
    "what the model is trained for is not written down": "modelin ne için eğitildiği yazılmamış",
    "the data are not named": "verinin adı verilmemiş",
    "no example is written down": "örnek yazılmamış",
    "the job does not fit on {gpu}": "iş {gpu} kartına sığmıyor",
    "{rows} rows per optimizer step by micro-batch, accumulation and GPUs, but {asked} are planned": "mikro batch, biriktirme ve GPU sayısıyla optimizer adımı başına {rows} satır düşüyor, planda {asked} var",
    "no place for checkpoints is named": "checkpoint'lerin yeri belirtilmemiş",
    "where the result goes is not said": "sonucun nereye gideceği belirtilmemiş",
    "how the result is checked is not said": "sonucun nasıl denetleneceği belirtilmemiş",
    "who may access the data is not said": "veriye kimin erişebileceği belirtilmemiş",
    "who deletes the data, and when, is not said": "veriyi kimin, ne zaman sileceği belirtilmemiş",
    "personal data are moved unencrypted": "kişisel veri şifrelenmeden taşınıyor",
    "no pilot has run": "pilot koşmadı",
    "the pilot ran another job than the plan's": "pilot, plandakinden başka bir iş koştu",
    "the pilot ended with: {problem}": "pilot şöyle bitti: {problem}",
    "the pilot did not measure all that is asked": "pilot istenenlerin hepsini ölçmedi",
}
PLANS: dict[str, str] = {**_FILE, **_STEPS}
