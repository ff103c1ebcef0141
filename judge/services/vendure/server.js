// The shop: node server.js PORT. It runs no jobs: no order needs one.
'use strict';

const { bootstrap } = require('@vendure/core');
const config = require('./config.js');

bootstrap(config(Number(process.argv[2])));
