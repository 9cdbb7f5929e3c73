//! The words that commands, names and contents are made of: short, common, and only lower-case letters.

/// Words for contents, arguments and names.
pub(crate) const WORDS: &str = "\
acorn amber anchor apple apron arch arrow aspen atlas attic autumn badge bagel baker bamboo banjo bark barn basil \
basket beach beacon bean bear bell bench berry birch bird blade blanket bloom blue boat bolt book border bottle bowl \
box branch brass bread breeze brick bridge broom brown brush bucket butter button cabin cable cactus cake camel camp \
candle canoe canvas card cargo carpet carrot castle cedar chain chair chalk cheese cherry chest clay cliff clock cloud \
clover coal coast cobra coin comet copper coral corn cotton crane crow crown cup curtain daisy dance dawn deer delta \
desert dish dock dove dragon dream drum dune dust eagle earth east elm ember engine fabric falcon fan farm feather \
fence fern ferry field fig finch fire flag flame flint flour flower flute fog forest fork fox frost fruit garden \
garlic gate ghost ginger glass glove goat gold goose grain grape grass green grove guitar hammer harbor hawk hazel heart \
hedge heron hill hinge honey hook horn horse house ice iron island ivory ivy jacket jade jar jasmine jelly jewel jungle \
kettle key kite kiwi knife ladder lake lamp lantern lark laurel lava leaf lemon lens lily lime linen lion lizard lotus \
lunar maple marble market marsh meadow melon mill mint mirror mist moon moss moth mountain mouse music nail needle nest \
net night north nut oak oasis oat ocean olive onion opal orange orchid otter oven owl palm panda paper parrot path \
peach pear pearl pebble pencil pepper petal piano pigeon pillow pine pink plain planet plate plum pond pony poppy pot \
prism purple quail quartz queen quilt rabbit radio rain raven red reef ribbon rice ring river road robin rock roof \
rose ruby rust sail salmon sand scarf seal seed shadow sheep shell ship shoe shore silk silver sky slate sleet smoke \
snow soap soil song south spark spider spoon spring star steam steel stem stone storm straw stream sugar summer sun swan \
table tea tent thorn thread thunder tiger tile timber toast torch tower train tree trunk tulip tunnel turtle valley \
vase velvet vine violet violin wagon walnut water wave wax west whale wheat wheel white willow wind window wing winter \
wolf wood wool yarn yellow zebra zinc";

/// Names of people, for the home directory and `USER`.
pub(crate) const USERS: &str = "\
ada alma amir ana ben bo cai cleo dan dee eli emma eva finn gus hana ian ines iris ivan jan jo kai kim lea leo lin lou \
mae max mei mia nia nils noa nora olga omar otto pia ravi rex rosa sam sara tara theo tom uma vera yan zoe";

/// Names of variables.
pub(crate) const VARIABLES: &str = "\
a b c e j m p q r t y z age base cost count day item key kind last limit name next num part pick rank size step sum tag \
top total unit word";

/// Names of functions.
pub(crate) const FUNCTIONS: &str = "call greet join look mark pair peek say show swap tell twice wrap";

/// Mistyped and unknown commands.
pub(crate) const UNKNOWN_COMMANDS: &str = "\
sl srot grpe cta ehco pdw mkidr tial haed dri copy move list erase show2 catt lss whcih fnd wcc gerp finds counts runit";
