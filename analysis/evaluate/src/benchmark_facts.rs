//! What is known of the benchmark behind the tables of `lambda/`: NVIDIA's DeepLearningExamples, as
//! lambdal/deeplearning-benchmark starts them. Facts from their code and configurations, not from
//! the tables, except for the two numbers in [`Unpublished`].

/// One model of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Benchmark {
    /// The table's name.
    pub name: &'static str,
    /// Trainable parameters.
    pub parameters: f64,
    /// Whether its gradients are in FP16 where it trains in FP16: models that are cast as a whole
    /// (apex O2, GNMT's own), not those under autocast.
    pub half_gradients: bool,
    /// What is counted as a second's throughput, for each sample of a batch.
    pub counted_per_sample: f64,
    /// How gradients are exchanged, and what else differs with several GPUs.
    pub way: Way,
}

/// What the program does with several GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Sums gradients over them.
    Exchange,
    /// The same, and each step waits for the input of the slowest GPU: one worker process for each GPU
    /// decodes sound, and the first thing a step does is to sum the loss over all GPUs
    /// (`num_workers=1` and `reduce_tensor` of Tacotron 2's `train.py`).
    ExchangeAndFeed,
    /// Nothing is exchanged: Transformer-XL takes `--multi_gpu ddp` for that, which the benchmark
    /// does not give.
    Apart,
}

/// What no source at hand says about the programs, and is fitted with the rest
/// (`analysis/evaluate/src/bin/fit_data_parallel.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpublished {
    /// GNMT's throughput is of tokens of both languages: tokens of a pair of sentences.
    pub gnmt_tokens: f64,
    /// Milliseconds that a step of a program with [`Way::ExchangeAndFeed`] waits for each sample of each
    /// further GPU.
    pub feeding_milliseconds: f64,
}

/// As fitted.
pub const UNPUBLISHED: Unpublished =
    Unpublished { gnmt_tokens: GNMT_TOKENS, feeding_milliseconds: 1.1 };

const GNMT_TOKENS: f64 = 34.4;

/// All of them. Parameters: torchvision's ResNet-50; SSD300 with NVIDIA's ResNet-50 trunk, counted
/// from its layers; BERT with a span head (Devlin et al. 2019: 110 and 340 million with the pooler);
/// GNMT v2 as its training log counts; NeuMF on MovieLens-20M: 138,493 users and 26,744 items with 64
/// and 128 numbers each, and its dense layers; Tacotron 2 and WaveGlow (512 channels) as their papers'
/// NVIDIA implementations have.
const ALL: [Benchmark; 10] = [
    exchanging("resnet50", 25.56e6, false, 1.0),
    exchanging("ssd", 22.9e6, false, 1.0),
    exchanging("bert_base_squad", 108.9e6, true, 1.0),
    exchanging("bert_large_squad", 334.1e6, true, 1.0),
    exchanging("gnmt", 159.6e6, true, GNMT_TOKENS),
    exchanging("ncf", 31.8e6, false, 1.0),
    // Frames of 256 samples at 22,050 Hz; a clip of LJSpeech is 6.57 s long on average.
    Benchmark { way: Way::ExchangeAndFeed, ..exchanging("tacotron2", 28.2e6, false, 566.0) },
    // Samples: `--segment-length 8000`.
    exchanging("waveglow", 268.0e6, false, 8_000.0),
    // Tokens: `--tgt_len`.
    Benchmark { way: Way::Apart, ..exchanging("transformerxlbase", 192e6, false, 192.0) },
    Benchmark { way: Way::Apart, ..exchanging("transformerxllarge", 247e6, false, 256.0) },
];

const fn exchanging(
    name: &'static str,
    parameters: f64,
    half_gradients: bool,
    counted_per_sample: f64,
) -> Benchmark {
    Benchmark { name, parameters, half_gradients, counted_per_sample, way: Way::Exchange }
}

/// The model of that name.
pub fn benchmark(name: &str) -> Option<&'static Benchmark> {
    ALL.iter().find(|one| one.name == name)
}

impl Benchmark {
    /// Milliseconds that a step waits for the input of each further GPU, with batches of this size on
    /// each.
    pub fn feeding_milliseconds(&self, batch: f64, unpublished: &Unpublished) -> f64 {
        match self.way {
            Way::ExchangeAndFeed => unpublished.feeding_milliseconds * batch,
            Way::Exchange | Way::Apart => 0.0,
        }
    }

    /// Bytes of gradients that are summed over the GPUs.
    pub fn gradient_bytes(&self, half: bool) -> f64 {
        match self.way {
            Way::Apart => 0.0,
            _ if half && self.half_gradients => 2.0 * self.parameters,
            _ => 4.0 * self.parameters,
        }
    }

    /// What the program counts as done, over what it has done: a part of an epoch is dropped, or steps
    /// are counted that were not made. `batch` is of all GPUs together.
    pub fn counted(&self, batch: f64, gpus: u32) -> f64 {
        match self.name {
            // 19,861,770 ratings to train on and four times as many negatives an epoch; the last
            // batch is dropped, and all are counted (`ncf.py`, `dataloading.py`).
            "ncf" => {
                const EPOCH: f64 = 5.0 * 19_861_770.0;
                EPOCH / (batch * ((EPOCH / batch).ceil() - 1.0).max(1.0))
            }
            // SQuAD 1.1 makes 88,641 sequences; two epochs of them end before 100 steps where the
            // batch is large, and 100 are counted (`run_squad.py`).
            "bert_base_squad" | "bert_large_squad" => {
                const SEQUENCES: f64 = 88_641.0;
                const STEPS: f64 = 100.0;
                let gpus = f64::from(gpus.max(1));
                let made = 2.0 * ((SEQUENCES / gpus).ceil() / (batch / gpus)).ceil();
                STEPS / made.min(STEPS + 1.0)
            }
            _ => 1.0,
        }
    }

    /// Milliseconds of a step at a throughput as the program counts it.
    pub fn step_milliseconds(&self, batch: f64, gpus: u32, per_second: f64) -> f64 {
        batch * self.counted_per_sample * self.counted(batch, gpus) / per_second * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_and_not_done_is_told() {
        let bert = benchmark("bert_base_squad").expect("it is there");
        assert_eq!(bert.counted(192.0, 1), 100.0 / 101.0);
        // 11,081 sequences a GPU in batches of 320: 35 steps an epoch.
        assert_eq!(bert.counted(2_560.0, 8), 100.0 / 70.0);
        let ncf = benchmark("ncf").expect("it is there");
        assert!((ncf.counted(64e6, 8) - 99_308_850.0 / 64e6).abs() < 1e-12);
        assert_eq!(benchmark("ssd").map(|one| one.counted(8.0, 1)), Some(1.0));
    }

    #[test]
    fn gradients_are_as_large_as_their_type() {
        let bytes = |name, half| benchmark(name).map(|one| one.gradient_bytes(half));
        assert_eq!(bytes("resnet50", true), Some(4.0 * 25.56e6));
        assert_eq!(bytes("bert_large_squad", true), Some(2.0 * 334.1e6));
        assert_eq!(bytes("bert_large_squad", false), Some(4.0 * 334.1e6));
        assert_eq!(bytes("transformerxlbase", false), Some(0.0));
    }
}
